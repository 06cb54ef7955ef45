// What an episode notes on its node's disk, turn by turn, so that the next attempt goes on after its last finished turn. An optimisation:
// torn or damaged entries, or another plan's, are sampled and called again, to the same record.
//
// A file is lines of `{checksum} {JSON}`. Each checksum (CRC-32) covers all lines so far, so an entry counts only if every one before it
// does.
import { hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { SamplingKey } from '../engine/policy-engine.js';
import type { SessionReference } from '../environments/environment.js';
import type { Digest } from '../spec/records/parts.js';
import type { ToolCall } from '../spec/records/task.js';

/** The first line. Entries are used only under the very same header. */
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

/** Where a play of the episode stands; a failure is charged to this place, and tried again there. A number is a turn. */
export type Place = 'open' | 'grade' | number;

export interface JournaledFailure {
  place: Place;
  kind: 'unavailable' | 'failed';
  reason: string;
}

export type JournalEntry =
  /** A play begins, in a session that can be attached to or, null, in one that cannot. */
  | { type: 'session'; session: SessionReference | null }
  /** The turn sampled after a transcript (`transcriptDigest`). */
  | ({ type: 'tokens'; after: string } & SampledTurn)
  /** On the disk before the call is sent. */
  | { type: 'intent'; turn: number; call: ToolCall }
  /** As shown to the model. */
  | { type: 'result'; turn: number; observation: string; isError: boolean }
  /** The play has ended; another one follows. */
  | ({ type: 'failure' } & JournaledFailure);

export interface JournaledCall {
  call: ToolCall;
  result?: { observation: string; isError: boolean };
}

/** What an earlier attempt has left. */
export interface JournaledPast {
  /** By the transcript before. */
  sampled: Map<string, SampledTurn>;
  failures: JournaledFailure[];
  /** The world of that attempt, and the calls that were sent there, by turn. */
  world: { session: SessionReference; calls: Map<number, JournaledCall> } | null;
}

/** Where an episode notes its turns. */
export interface TurnJournal {
  readonly past: JournaledPast;
  /** In memory until the next `write`. */
  note(entry: JournalEntry): void;
  /** Resolves when all notes are in the file, or will never be. Never rejects. */
  write(): Promise<void>;
}

export const nothingPast = (): JournaledPast => ({ sampled: new Map(), failures: [], world: null });

/** Journal of an episode that no later attempt may continue. */
export const unkeptJournal = (): TurnJournal => ({
  past: nothingPast(),
  note: () => undefined,
  write: () => Promise.resolve(),
});

/** Identifies a transcript. */
export function transcriptDigest(tokens: readonly number[]): string {
  return hash('sha256', Uint32Array.from(tokens), 'base64');
}

/** A line, and the checksum that the next line continues; 0 before the first. */
export function encodeLine(
  value: JournalHeader | JournalEntry,
  before: number,
): { line: string; check: number } {
  const json = JSON.stringify(value);
  const check = crc32(json, before);
  return { line: `${hex(check)} ${json}\n`, check };
}

export interface ReadJournal {
  entries: JournalEntry[];
  /** Bytes up to the end of the last whole entry. */
  length: number;
  check: number;
}

/** The entries of a file up to the first damaged one; null if it has another header. Never throws. */
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

/** The past that the entries add up to. */
export function pastOf(entries: readonly JournalEntry[]): JournaledPast {
  const past = nothingPast();
  for (const entry of entries) {
    switch (entry.type) {
      case 'session':
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
        if (called) called.result = { observation: entry.observation, isError: entry.isError };
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

const entryTypes: readonly unknown[] = ['session', 'tokens', 'intent', 'result', 'failure'];

/** Parses a line with a correct checksum: only a writer's mistake can make it fail. */
function parseEntry(json: string): JournalEntry | null {
  let entry: JournalEntry;
  try {
    entry = JSON.parse(json) as JournalEntry;
  } catch {
    return null;
  }
  if (!entryTypes.includes((entry as { type?: unknown } | null)?.type)) return null;
  if (entry.type !== 'tokens') return entry;
  // JSON has no infinities: they come back as null.
  const { tokens, logprobs } = entry;
  const whole = tokens.length === logprobs.length && [...tokens, ...logprobs].every(Number.isFinite);
  return whole ? entry : null;
}
