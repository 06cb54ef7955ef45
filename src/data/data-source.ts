// Reads the data files that a spec names, from a disk or a bucket.
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { TextDecoder } from 'node:util';
import { isInBucket, isOnServer } from '../spec/spec-paths.js';
import type { Digest } from '../spec/records/parts.js';
import { parseS3Address } from '../store/objects/s3-address.js';
import { StoreUnavailable } from '../store/record-errors.js';
import { EnvironmentError } from '../environments/environment.js';
import { headersIn } from '../environments/openenv/server-options.js';
import { readServerTasks } from '../environments/openenv/task-api.js';
import { lines } from './dataset-writer.js';
import { BadDataFile } from './task-file.js';

const pieceBytes = 1 << 20;
const serverParameters = ['split', 'held_out', 'env_key', 'headers_env'];
/** Limit for listing all tasks of a server. */
const listWithinMs = 10 * 60_000;

/** A source as it was read. */
export interface ReadSource {
  path: string;
  size: number;
  sha256: Digest;
}

/** The source is missing, or cannot be reached as it is named. */
export class UnreadableFile extends BadDataFile {}

/**
 * Passes the text of a file to `take`, piece by piece. `path`: a file; `s3://bucket/key` with the parameters and credentials of a store's
 * address; or the tasks of a server (see `isOnServer`). Throws `BadDataFile`; what `isAway` tells; or the signal's reason.
 */
export async function readSource(
  path: string,
  take: (piece: string) => void | Promise<void>,
  signal?: AbortSignal,
): Promise<ReadSource> {
  const hash = createHash('sha256');
  // Strict decoding: a replaced character would silently change a task. The decoder drops a byte order mark.
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let size = 0;
  const pieces = open(path, signal)[Symbol.asyncIterator]();
  for (;;) {
    const next = await pieces.next().catch((error: unknown) => {
      signal?.throwIfAborted();
      // What was read so far can be read again.
      throw isAway(error) ? error : new UnreadableFile(path, [`cannot be read: ${(error as Error).message}`]);
    });
    const bytes = next.done === true ? undefined : next.value;
    if (bytes) {
      if (size === 0) refuseOtherFormats(path, bytes);
      hash.update(bytes);
      size += bytes.length;
    }
    await take(decoded(path, decoder, bytes));
    if (!bytes) return { path, size, sha256: hash.digest('hex') };
  }
}

/** Whether a bucket or a server did not answer, and may answer later. */
export function isAway(error: unknown): error is Error {
  return (
    error instanceof StoreUnavailable || (error instanceof EnvironmentError && error.kind === 'unavailable')
  );
}

const toLines =
  "write its rows as JSON lines: pandas.read_parquet('FILE').to_json('tasks.jsonl', orient='records', lines=True)";
/** Formats of data sets, by the first bytes of a file. */
const formats: readonly [begins: string, name: string, fix: string][] = [
  ['PAR1', 'a Parquet file', toLines],
  ['ARROW1', 'an Arrow file', toLines.replace('read_parquet', 'read_feather')],
  ['\x1f\x8b', 'compressed with gzip', 'unpack it: gunzip FILE'],
  ['\x28\xb5\x2f\xfd', 'compressed with zstd', 'unpack it: unzstd FILE'],
  ['PK\x03\x04', 'a ZIP archive', 'unpack it'],
  ['version https://git-lfs', 'a pointer of Git LFS, not the file', 'fetch the file: git lfs pull'],
];

/** A first line with separators and without a bracket: the names of columns. */
const columnNames = /^[^{[\n]*[,;\t][^{[\n]*\n/;

function refuseOtherFormats(path: string, bytes: Uint8Array): void {
  if (columnNames.test(Buffer.from(bytes.subarray(0, 4096)).toString('latin1')))
    throw new BadDataFile(path, [`is a CSV file; ${toLines.replace('read_parquet', 'read_csv')}`]);
  const begins = Buffer.from(bytes.subarray(0, 32)).toString('latin1');
  const format = formats.find(([start]) => begins.startsWith(start));
  if (format) throw new BadDataFile(path, [`is ${format[1]}; ${format[2]}`]);
}

/** The whole text. Throws as `readSource` does. */
export async function readSourceText(path: string, signal?: AbortSignal): Promise<string> {
  const pieces: string[] = [];
  await readSource(path, (piece) => void pieces.push(piece), signal);
  return pieces.join('');
}

function decoded(path: string, decoder: TextDecoder, bytes: Uint8Array | undefined): string {
  try {
    return bytes ? decoder.decode(bytes, { stream: true }) : decoder.decode();
  } catch {
    throw new BadDataFile(path, ['is not UTF-8 text; save it as UTF-8']);
  }
}

function open(path: string, signal: AbortSignal | undefined): AsyncIterable<Uint8Array> {
  if (isOnServer(path)) return openServer(path, signal);
  return isInBucket(path) ? openObject(path) : createReadStream(path, { highWaterMark: pieceBytes });
}

/** The tasks as a file of lines: those of `split`, then those of `held_out` as tasks that are held out. */
async function* openServer(path: string, signal: AbortSignal | undefined): AsyncIterable<Uint8Array> {
  const { origin, pathname, searchParams } = new URL(path.slice('openenv+'.length));
  const env = decodeURIComponent(pathname.replace(/^\/+|\/+$/g, ''));
  if (env === '') throw new Error('it names no environment: openenv+http://host:port/ENV');
  const unknown = [...searchParams.keys()].find((name) => !serverParameters.includes(name));
  if (unknown !== undefined)
    throw new Error(`it has the parameter "${unknown}"; known are ${serverParameters.join(', ')}`);
  const headersName = searchParams.get('headers_env');
  const envKey = searchParams.get('env_key');
  const heldOut = searchParams.get('held_out');
  const splits = [
    { name: searchParams.get('split') ?? 'train', side: 'train' },
    ...(heldOut === null ? [] : [{ name: heldOut, side: 'held_out' }]),
  ];
  for (const { name, side } of splits) {
    const late = AbortSignal.timeout(listWithinMs);
    const tasks = await readServerTasks(origin, env, name, signal ? AbortSignal.any([signal, late]) : late, {
      ...(envKey === null ? {} : { envKey }),
      ...(headersName === null ? {} : { headers: headersIn(envKey ?? env, headersName) }),
    });
    yield Buffer.from(lines(tasks.map((task) => ({ ...task, split: side }))));
  }
}

async function* openObject(path: string): AsyncIterable<Uint8Array> {
  const [place = '', query] = path.split('?', 2);
  const slash = place.lastIndexOf('/');
  const address = `${place.slice(0, slash)}${query === undefined ? '' : `?${query}`}`;
  const { openS3Store } = await import('../store/objects/s3-store.js');
  const pieces = await openS3Store(parseS3Address(address)).stream(
    decodeURIComponent(place.slice(slash + 1)),
  );
  if (pieces === null) throw new Error('there is no such object');
  yield* pieces;
}
