// What goldens.py recorded from Fleet's Python SDK.
import { readFileSync } from 'node:fs';
import { Tuple, type Picklable } from '../../../src/environments/fleet/pickle.js';
import { sha256Hex } from '../../../src/base/sha256.js';

interface Goldens {
  instance: string;
  code: string;
  values: { value: unknown; pickle: string }[];
  asked: {
    known: boolean;
    answer: unknown;
    runtime: string;
    requests: { method: string; path: string; body?: Record<string, unknown> }[];
  }[];
}

export const goldens = JSON.parse(
  readFileSync(new URL('./goldens.json', import.meta.url), 'utf8'),
) as Goldens;

/** The value that a description stands for; `built` in goldens.py does the same. */
export function built(spec: unknown): Picklable {
  if (Array.isArray(spec)) return spec.map(built);
  if (typeof spec !== 'object' || spec === null) return spec as Picklable;
  const { $repeat, $tuple, $numbers, $keys, $texts } = spec as {
    $repeat?: [string, number];
    $tuple?: unknown[];
    $numbers?: number;
    $keys?: number;
    $texts?: [number, number];
  };
  const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n);
  if ($repeat) return $repeat[0].repeat($repeat[1]);
  if ($tuple) return new Tuple(...$tuple.map(built));
  if ($numbers !== undefined) return upTo($numbers);
  if ($keys !== undefined) return Object.fromEntries(upTo($keys).map((n) => [`key ${n}`, n]));
  if ($texts) return upTo($texts[0]).map((n) => String(n).padStart($texts[1], '0'));
  return Object.fromEntries(Object.entries(spec).map(([key, value]) => [key, built(value)]));
}

/** Base64 if it is short, else its sha256. */
export function shortened(data: Buffer): string {
  return data.length <= 512 ? data.toString('base64') : sha256Hex(data);
}
