// A sweep's record and its pairs of a state and a suite. The record fixes the choice of pairs: restarts of the sweep, and all its
// activities, use the same pairs, even if the runs train further.
import type { SweepRecord, SweepSuiteEntry } from '../../spec/records/sweep-record.js';
import type { Digest } from '../../spec/records/parts.js';
import { newestResult } from './evaluation-rounds.js';
import { sweepKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord } from '../records/records.js';
import { UnreadableRecord } from '../record-errors.js';

/** One state on one suite. Pair n is suite `n mod suites` on checkpoint `n div suites`, so neighbouring pairs share a state. */
export interface SweepPair {
  n: number;
  run: string;
  step: number;
  state: Digest;
  suite: SweepSuiteEntry;
}

/** The sweep's record; null if it does not exist. Throws `UnreadableRecord`. */
export async function readSweepIfAny(store: ObjectStore, sweep: string): Promise<SweepRecord | null> {
  const key = sweepKey(sweep);
  const record = await readRecord(store, key, 'sweep');
  if (record !== null && record.sweep !== sweep)
    throw new UnreadableRecord(key, `it says sweep ${record.sweep}`);
  return record;
}

export async function readSweep(store: ObjectStore, sweep: string): Promise<SweepRecord> {
  const record = await readSweepIfAny(store, sweep);
  if (record === null) throw new UnreadableRecord(sweepKey(sweep), 'it is not in the store');
  return record;
}

export function pairCount({ checkpoints, suites }: SweepRecord): number {
  return checkpoints.length * suites.length;
}

/** The n-th pair, n from 0. Throws a RangeError if the sweep has no such pair. */
export function pairOf({ sweep, checkpoints, suites }: SweepRecord, n: number): SweepPair {
  const checkpoint = checkpoints[Math.floor(n / suites.length)];
  const suite = suites[n % suites.length];
  if (checkpoint === undefined || suite === undefined) throw new RangeError(`${sweep} has no pair ${n}`);
  const { run, step, state } = checkpoint;
  return { n, run, step, state, suite };
}

/** The pair, with its suite replaced by the suite's newest round that has a result; unchanged if no round has a result. */
export async function withNewestResult(
  store: ObjectStore,
  pair: SweepPair,
): Promise<{ pair: SweepPair; isWhole: boolean }> {
  const { state, suite } = pair;
  const round = await newestResult(store, state, suite.record, suite.digest);
  if (round === null) return { pair, isWhole: false };
  return { pair: { ...pair, suite: { ...suite, record: round.suite, digest: round.digest } }, isWhole: true };
}
