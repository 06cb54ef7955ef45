// The record of one sweep, `sweeps/{sweep}/sweep.json`: what is to be evaluated on what, chosen once. Whoever starts the sweep again, and
// every activity of it, finds the same choice, whatever has been trained meanwhile.
import { z } from 'zod';
import type { SuiteRecord } from '../spec/evaluation-records.js';
import type { Digest } from '../spec/records.js';
import { canonicalBytes } from '../store/canonical.js';
import { checkKey, evaluationResultKey } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { checkRecord } from '../store/record-codec.js';
import { UnreadableRecord } from '../store/store-errors.js';
import type { SelectedCheckpoint, SkippedCheckpoint } from './checkpoint-selection.js';
import type { SweepSpec } from './sweep-spec.js';

export interface SweepSuiteEntry {
  /** The sweep's name for it. */
  label: string;
  digest: Digest;
  record: SuiteRecord;
}

export interface SweepRecord {
  schema: 'longhaul.sweep/1';
  sweep: string;
  spec: SweepSpec;
  /** Run whose data and settings the suites have. */
  suites_of: string;
  checkpoints: SelectedCheckpoint[];
  suites: SweepSuiteEntry[];
  /** State that all others are compared with; null: the first checkpoint's. */
  baseline: Digest | null;
  skipped: SkippedCheckpoint[];
  observed: { at: string };
}

/** One state on one suite. Pair n is suite `n mod suites` of checkpoint `n div suites`: neighbours share a state. */
export interface SweepPair {
  n: number;
  run: string;
  step: number;
  state: Digest;
  suite: SweepSuiteEntry;
}

const sweepsRoot = 'sweeps/';
const place = z.strictObject({ run: z.string(), step: z.number() });
const schema = z.strictObject({
  schema: z.literal('longhaul.sweep/1'),
  sweep: z.string(),
  spec: z.custom<SweepSpec>((value) => typeof value === 'object' && value !== null),
  suites_of: z.string(),
  checkpoints: z.array(place.extend({ state: z.string(), also: z.array(place), needed: z.boolean() })),
  suites: z.array(
    z.strictObject({
      label: z.string(),
      digest: z.string(),
      record: z.custom<SuiteRecord>((value) => typeof value === 'object' && value !== null),
    }),
  ),
  baseline: z.string().nullable(),
  skipped: z.array(z.strictObject({ run: z.string(), step: z.number().nullable(), reason: z.string() })),
  observed: z.strictObject({ at: z.string() }),
});

export const sweepFolder = (sweep: string): string => `${sweepsRoot}${sweep}/`;
export const sweepKey = (sweep: string): string => checkKey(`${sweepFolder(sweep)}sweep.json`);
/** By content: a sweep that was started again may know more. */
export const comparisonKey = (sweep: string, digest: Digest, ending: 'json' | 'html'): string =>
  checkKey(`${sweepFolder(sweep)}comparison.${digest.slice(0, 12)}.${ending}`);

/** Null where there is none. Throws `UnreadableRecord`. */
export async function readSweepIfAny(store: ObjectStore, sweep: string): Promise<SweepRecord | null> {
  const key = sweepKey(sweep);
  const bytes = await store.get(key);
  if (bytes === null) return null;
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(bytes).toString('utf8'));
  } catch (error) {
    throw new UnreadableRecord(key, `it is no JSON: ${(error as Error).message}`);
  }
  const checked = schema.safeParse(value);
  if (!checked.success) {
    const [issue] = checked.error.issues;
    throw new UnreadableRecord(key, `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not valid'}`);
  }
  if (checked.data.sweep !== sweep)
    throw new UnreadableRecord(key, `it says that it is ${checked.data.sweep}`);
  for (const { record } of checked.data.suites) checkRecord(key, 'suite', record);
  return checked.data;
}

export async function readSweep(store: ObjectStore, sweep: string): Promise<SweepRecord> {
  const record = await readSweepIfAny(store, sweep);
  if (record === null) throw new UnreadableRecord(sweepKey(sweep), 'it is not in the store');
  return record;
}

/** The first record wins, and everybody adopts it. */
export async function adoptSweep(store: ObjectStore, record: SweepRecord): Promise<SweepRecord> {
  const answer = await store.create(sweepKey(record.sweep), canonicalBytes(record));
  return answer === 'created' ? record : readSweep(store, record.sweep);
}

export function pairCount({ checkpoints, suites }: SweepRecord): number {
  return checkpoints.length * suites.length;
}

/** Throws a RangeError on a pair that the sweep does not have. */
export function pairOf({ sweep, checkpoints, suites }: SweepRecord, n: number): SweepPair {
  const checkpoint = checkpoints[Math.floor(n / suites.length)];
  const suite = suites[n % suites.length];
  if (checkpoint === undefined || suite === undefined) throw new RangeError(`${sweep} has no pair ${n}`);
  const { run, step, state } = checkpoint;
  return { n, run, step, state, suite };
}

export function resultKeyOf({ state, suite }: SweepPair): string {
  return evaluationResultKey(state, suite.digest);
}
