// Encodes and decodes records. Decoding refuses a newer schema, an unknown member and broken JSON.
import { parseJson } from '../../base/json.js';
import { promisify } from 'node:util';
import { gunzip, gunzipSync, gzip, gzipSync } from 'node:zlib';
import { canonicalBytes, canonicalText } from './canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import {
  oldestVersions,
  recordSchemas,
  schemaVersions,
  summedKinds,
  type RecordKind,
  type RecordTypes,
} from '../../spec/records/record-kinds.js';
import { NewerSchema, OlderSchema, UnreadableRecord } from '../record-errors.js';

const gzipOsByte = 9;
const osUnknown = 255;
/** Guards against gzip bombs; the longest real episode is some MiB. */
export const maxUncompressedBytes = 1 << 30;

/** Records up to this size are compressed synchronously: it takes well under a millisecond, and the thread pool costs more. */
const smallBytes = 16 * 1024;
/** The small window saves memory: by default, zlib allocates 256 KiB for each record of a few KiB. */
const compression = { level: 4, memLevel: 5, windowBits: 13 } as const;

const gzipAsync = promisify(gzip);
const gunzipAsync = promisify(gunzip);

/** Canonical bytes of a record; for some kinds, compressed. Throws a TypeError if the record does not fit its schema. */
export async function encodeRecord<Kind extends RecordKind>(
  kind: Kind,
  record: RecordTypes[Kind],
): Promise<Uint8Array> {
  const checked = recordSchemas[kind].safeParse(record);
  if (!checked.success)
    throw new TypeError(`this is not a valid ${kind} record: ${describe(checked.error.issues)}`);
  const bytes = canonicalBytes(isSummed(kind, record) ? { ...record, sum: sumOf(record) } : record);
  return kind === 'episode' ? compress(bytes) : bytes;
}

/** Throws `UnreadableRecord`, `OlderSchema` or `NewerSchema`, naming `key`. */
export async function decodeRecord<Kind extends RecordKind>(
  key: string,
  kind: Kind,
  bytes: Uint8Array,
): Promise<RecordTypes[Kind]> {
  return checkRecord(key, kind, parse(key, kind === 'episode' ? await decompress(key, bytes) : bytes));
}

/** Checks a parsed value's schema string and members. */
export function checkRecord<Kind extends RecordKind>(
  key: string,
  kind: Kind,
  value: unknown,
): RecordTypes[Kind] {
  const found = schemaOf(value);
  if (found === null)
    throw new UnreadableRecord(key, 'it does not name its schema ("schema": "longhaul.KIND/VERSION")');
  const known = `longhaul.${kind}/${schemaVersions[kind]}`;
  if (found.kind !== kind) throw new UnreadableRecord(key, `it has schema ${found.text}, expected ${known}`);
  if (found.version > schemaVersions[kind]) throw new NewerSchema(key, found.text, known);
  if (found.version < (oldestVersions[kind] ?? schemaVersions[kind]))
    throw new OlderSchema(key, found.text, known);
  const checked = recordSchemas[kind].safeParse(isSummed(kind, value) ? withoutSum(key, value) : value);
  if (!checked.success)
    throw new UnreadableRecord(key, describe(checked.error.issues), { cause: checked.error });
  return checked.data;
}

function isSummed(kind: RecordKind, value: unknown): value is object {
  return summedKinds.has(kind) && schemaOf(value) !== null;
}

/** Checksum of a record without its member `sum`. It covers `observed`, too: a flipped bit there also misleads a run. */
function sumOf(record: object): string | null {
  try {
    return sha256Hex(canonicalText(record));
  } catch {
    // A flipped bit in an exponent can make a number infinite, which has no canonical text.
    return null;
  }
}

/** Throws `UnreadableRecord` if the record's own checksum shows that it was changed. */
function withoutSum(key: string, value: object): object {
  const { sum, ...record } = value as { sum?: unknown };
  const found = sumOf(record);
  if (found !== null && sum === found) return record;
  throw new UnreadableRecord(
    key,
    typeof sum === 'string'
      ? `it was changed: its sum is ${sum.slice(0, 80)}, but its other members have the sum ${found ?? 'none'}`
      : 'it has no member "sum"',
  );
}

/** Kind and version that a parsed value claims, or null if it claims none. */
export function schemaOf(value: unknown): { text: string; kind: string; version: number } | null {
  const text =
    typeof value === 'object' && value !== null ? (value as { schema?: unknown }).schema : undefined;
  const match = typeof text === 'string' ? /^longhaul\.([a-z]+)\/([1-9][0-9]{0,5})$/.exec(text) : null;
  return match ? { text: match[0], kind: match[1] as string, version: Number(match[2]) } : null;
}

export async function decompress(key: string, bytes: Uint8Array): Promise<Uint8Array> {
  try {
    const options = { maxOutputLength: maxUncompressedBytes };
    return bytes.length <= smallBytes ? gunzipSync(bytes, options) : await gunzipAsync(bytes, options);
  } catch (error) {
    throw new UnreadableRecord(key, `its ${bytes.length} bytes are not a complete gzip stream`, {
      cause: error,
    });
  }
}

/** Compresses to the same bytes on every machine. */
export async function compress(bytes: Uint8Array): Promise<Uint8Array> {
  const compressed =
    bytes.length <= smallBytes ? gzipSync(bytes, compression) : await gzipAsync(bytes, compression);
  // This byte is the only part of the header that depends on the machine: zlib sets the header's time to 0.
  compressed[gzipOsByte] = osUnknown;
  return compressed;
}

/** Like `compress`, to half the size in ten times the time. For files that are kept for ever. */
export async function compressSmall(bytes: Uint8Array): Promise<Uint8Array> {
  const compressed = await gzipAsync(bytes, { level: 9 });
  compressed[gzipOsByte] = osUnknown;
  return compressed;
}

/** Throws `UnreadableRecord`. */
export function parse(key: string, bytes: Uint8Array): unknown {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    // Only records with calls contain numbers from outside.
    return text.includes('"calls":') ? parseJson(text) : JSON.parse(text);
  } catch (error) {
    throw new UnreadableRecord(key, `its ${bytes.length} bytes are not JSON (${(error as Error).message})`, {
      cause: error,
    });
  }
}

function describe(issues: readonly { path: readonly PropertyKey[]; message: string }[]): string {
  const shown = issues
    .slice(0, 5)
    .map(({ path, message }) => `${path.map(String).join('.') || 'it'}: ${message}`);
  const rest = issues.length - shown.length;
  return shown.join('; ') + (rest > 0 ? `; and ${rest} more` : '');
}
