// Canonical JSON: the only bytes that are stored and hashed. It is RFC 8785 for the values that records hold:
// object members sorted by UTF-16 code units, no white space, numbers and strings as ECMAScript prints them.
import { isLosslessNumber } from 'lossless-json';
import { sha256Hex } from '../../base/sha256.js';
import type { Digest } from '../../spec/records/parts.js';

/** Canonical JSON text. If JSON cannot hold a value, throws a TypeError that names its path. */
export function canonicalText(value: unknown): string {
  return write(value, '$');
}

/** Canonical JSON as UTF-8. */
export function canonicalBytes(value: unknown): Uint8Array {
  return new TextEncoder().encode(canonicalText(value));
}

/** Digest that identifies a record: sha256 of its canonical JSON without the top-level member `observed`. */
export function recordDigest(record: object): Digest {
  const { observed: _, ...identity } = record as { observed?: unknown };
  return sha256Hex(canonicalText(identity));
}

/** `step_id` of an update (R11): sha256 of the three hex digests, each followed by a line feed. */
export function stepIdOf(previousState: Digest, batch: Digest, plan: Digest): Digest {
  return sha256Hex(`${previousState}\n${batch}\n${plan}\n`);
}

/** Up to `limit` paths at which two JSON values differ, each with both values. */
export function differences(stored: unknown, computed: unknown, limit = 8): string[] {
  const found: string[] = [];
  compare(stored, computed, '', found, limit);
  return found;
}

function write(value: unknown, path: string): string {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(value);
    case 'boolean':
      return value ? 'true' : 'false';
    case 'number':
      if (!Number.isFinite(value)) throw new TypeError(`${path} is ${value}; JSON has no such number`);
      return JSON.stringify(value);
    case 'object':
      if (value === null) return 'null';
      if (Array.isArray(value)) return writeArray(value, path);
      // The number came from outside and may be sent back, so its notation is kept.
      if (isLosslessNumber(value)) return value.value;
      return writeObject(value, path);
    default:
      throw new TypeError(`${path} is ${typeof value}; a record holds JSON values only`);
  }
}

function writeArray(array: readonly unknown[], path: string): string {
  // Nearly all of an episode is token ids and log-probs, and `JSON.stringify` is several times faster than our own code.
  if (array.length > 0 && array.every((item) => typeof item === 'number' && Number.isFinite(item))) {
    return JSON.stringify(array);
  }
  const items: string[] = [];
  for (let i = 0; i < array.length; i++) items.push(write(array[i], `${path}[${i}]`));
  return `[${items.join(',')}]`;
}

function writeObject(value: object, path: string): string {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    const name = (prototype as { constructor?: { name?: string } }).constructor?.name ?? 'unknown';
    throw new TypeError(`${path} is of class ${name}; a record holds plain objects only`);
  }
  const members = value as Record<string, unknown>;
  const parts: string[] = [];
  for (const key of Object.keys(members).sort()) {
    parts.push(`${JSON.stringify(key)}:${write(members[key], `${path}.${key}`)}`);
  }
  return `{${parts.join(',')}}`;
}

function compare(a: unknown, b: unknown, path: string, found: string[], limit: number): void {
  if (found.length >= limit || Object.is(a, b)) return;
  if (typeof a === 'object' && typeof b === 'object' && a && b && Array.isArray(a) === Array.isArray(b)) {
    const left = a as Record<string, unknown>;
    const right = b as Record<string, unknown>;
    for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) {
      compare(left[key], right[key], path ? `${path}.${key}` : key, found, limit);
    }
    return;
  }
  // -0 and 0 have the same canonical text.
  if (a === b) return;
  found.push(`${path || 'the value'} (stored ${brief(a)}, computed ${brief(b)})`);
}

function brief(value: unknown): string {
  const text = value === undefined ? 'nothing' : (JSON.stringify(value) ?? String(value));
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}
