// What goldens.py recorded from Fleet's Python SDK.
import { readFileSync } from 'node:fs';
import type { Picklable } from '../../../src/environments/fleet/pickle.js';
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
  if (typeof spec !== 'object' || spec === null) return spec as string | null;
  const { $repeat } = spec as { $repeat?: [string, number] };
  if ($repeat) return $repeat[0].repeat($repeat[1]);
  return Object.fromEntries(Object.entries(spec).map(([key, value]) => [key, built(value)]));
}

/** Base64 if it is short, else its sha256. */
export function shortened(data: Buffer): string {
  return data.length <= 512 ? data.toString('base64') : sha256Hex(data);
}
