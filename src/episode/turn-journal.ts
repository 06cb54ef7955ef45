// Notes an episode's progress on the node's disk, turn by turn, so that the next attempt continues after the last finished turn. This is
// only an optimisation: without a usable entry, the turn is sampled again and its call is made again, and the record is the same.
//
// A file consists of lines `{checksum} {JSON}`. Each checksum (CRC-32) covers all lines so far, so an entry counts only if every line
// before it is intact.
import { parseJson, writeJson } from '../base/json.js';
import { hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { SamplingKey } from '../engine/policy-engine.js';
import type { SessionReference } from '../environments/environment.js';
import type { Digest } from '../spec/records/parts.js';
import type { ToolCall } from '../spec/records/task.js';

/** The first line of the file. The entries are used only if this header is exactly the same. */
export interface JournalHeader {
  schema: 'longhaul.journal/1';
  /** Key of the episode's record. */
  episode: string;
  plan: Digest;
  state: Digest;
  sampling: Digest;
  /** Seed of the environment's world and faults. */
  seed: number;
  random: SamplingKey;
}

export interface SampledTurn {
  tokens: number[];
  logprobs: number[];
}

/** A place in a play of the episode: `open`, `grade`, or the number of a turn. Failures and tries are counted by place. */
export type Place = 'open' | 'grade' | number;

export interface JournaledFailure {
  place: Place;
  kind: 'unavailable' | 'failed';
  reason: string;
}

export type JournalEntry =
  /** A play begins. `session` is null if no later attempt can attach to it. */
  | { type: 'session'; session: SessionReference | null }
  /** A turn, sampled after the transcript with digest `after` (`transcriptDigest`). */
  | ({ type: 'tokens'; after: string } & SampledTurn)
  /** A tool call; written to disk before the call is sent. */
  | { type: 'intent'; turn: number; call: ToolCall }
  /** A tool result, as shown to the model. */
  | ({ type: 'result'; turn: number } & ShownResult)
  /** The play has failed; another one follows. */
  | ({ type: 'failure' } & JournaledFailure);

export interface ShownResult {
  observation: string;
  isError: boolean;
  /** The environment has ended the episode. */
  ends?: true;
}

export interface JournaledCall {
  call: ToolCall;
  result?: ShownResult;
}

/** What the journal of an earlier attempt contains. */
export interface JournaledPast {
  /** By digest of the transcript before the turn. */
  sampled: Map<string, SampledTurn>;
  failures: JournaledFailure[];
  /** The world of that attempt, and the calls sent to it, by turn. */
  world: { session: SessionReference; calls: Map<number, JournaledCall> } | null;
  /** Number of worlds that were opened. */
  openings: number;
}

/** Records the progress of an episode. */
export interface TurnJournal {
  readonly past: JournaledPast;
  /** Adds an entry in memory; `write` writes it to the file. */
  note(entry: JournalEntry): void;
  /** Resolves when all entries are in the file, or when they cannot be written any more. Never rejects. */
  write(): Promise<void>;
}

export const nothingPast = (): JournaledPast => ({
  sampled: new Map(),
  failures: [],
  world: null,
  openings: 0,
});

/** A journal that is not stored, so no later attempt can continue from it. */
export const unkeptJournal = (): TurnJournal => ({
  past: nothingPast(),
  note: () => undefined,
  write: () => Promise.resolve(),
});

/** Digest that identifies a transcript. */
export function transcriptDigest(tokens: readonly number[]): string {
  return hash('sha256', Uint32Array.from(tokens), 'base64');
}

/** Returns a line, and its checksum, which the next line continues. Before the first line the checksum is 0. */
export function encodeLine(
  value: JournalHeader | JournalEntry,
  before: number,
): { line: string; check: number } {
  // Only a call has numbers from outside, and tokens are many.
  const json = 'call' in value ? writeJson(value) : JSON.stringify(value);
  const check = crc32(json, before);
  return { line: `${hex(check)} ${json}\n`, check };
}

interface ReadJournal {
  entries: JournalEntry[];
  /** Bytes up to the end of the last intact entry. */
  length: number;
  check: number;
}

/** Reads the entries of a file up to the first damaged one; null if the header is different. Never throws. */
export function readJournal(bytes: Uint8Array, header: JournalHeader): ReadJournal | null {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read: ReadJournal = { entries: [], length: 0, check: 0 };
  let expected: string | null = encodeLine(header, 0).line;
  for (;;) {
    const end = file.indexOf('\n', read.length);
    if (end < 0) break;
    const json = file.subarray(read.length + checksumLength + 1, end);
    const check = crc32(json, read.check);
    if (file.toString('latin1', read.length, read.length + checksumLength + 1) !== `${hex(check)} `) break;
    if (expected === null) {
      const entry = parseEntry(json.toString('utf8'));
      if (!entry) break;
      read.entries.push(entry);
    } else if (file.toString('utf8', 0, end + 1) !== expected) return null;
    expected = null;
    read.length = end + 1;
    read.check = check;
  }
  return expected === null ? read : null;
}

export function shownResult({ observation, isError, ends }: ShownResult): ShownResult {
  return { observation, isError, ...(ends ? { ends } : {}) };
}

/** The state of the episode after all these entries. */
export function pastOf(entries: readonly JournalEntry[]): JournaledPast {
  const past = nothingPast();
  for (const entry of entries) {
    switch (entry.type) {
      case 'session':
        past.openings += 1;
        past.world = entry.session && { session: entry.session, calls: new Map() };
        break;
      case 'tokens':
        past.sampled.set(entry.after, { tokens: entry.tokens, logprobs: entry.logprobs });
        break;
      case 'intent':
        past.world?.calls.set(entry.turn, { call: entry.call });
        break;
      case 'result': {
        const called = past.world?.calls.get(entry.turn);
        if (called) called.result = shownResult(entry);
        break;
      }
      case 'failure':
        past.failures.push({ place: entry.place, kind: entry.kind, reason: entry.reason });
        past.world = null;
    }
  }
  return past;
}

const checksumLength = 8;

function hex(check: number): string {
  return check.toString(16).padStart(checksumLength, '0');
}

const intentBegin = '{"type":"intent"';
const entryTypes: readonly unknown[] = ['session', 'tokens', 'intent', 'result', 'failure'];

/** Parses a line whose checksum is correct, so this can fail only after a bug in the writer. */
function parseEntry(json: string): JournalEntry | null {
  let entry: JournalEntry;
  try {
    entry = (json.startsWith(intentBegin) ? parseJson(json) : JSON.parse(json)) as JournalEntry;
  } catch {
    return null;
  }
  if (!entryTypes.includes((entry as { type?: unknown } | null)?.type)) return null;
  if (entry.type !== 'tokens') return entry;
  // JSON has no infinities: it writes them as null.
  const { tokens, logprobs } = entry;
  const whole = tokens.length === logprobs.length && [...tokens, ...logprobs].every(Number.isFinite);
  return whole ? entry : null;
}
