// The rounds of an evaluation. On request, a new round plays tasks with unknown outcomes again. The round's number is part of its suite, so
// each round has its own folder, and earlier rounds stay unchanged.
import type { SuiteRecord } from '../../spec/records/evaluation-records.js';
import type { Digest } from '../../spec/records/parts.js';
import { recordDigest } from '../records/canonical.js';
import { evaluationResultKey, evaluationSuiteKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';

export interface SuiteRound {
  n: number;
  suite: SuiteRecord;
  digest: Digest;
}

/** `suite`: the first round's suite; `digest`: the digest in its key. */
export function roundOf(suite: SuiteRecord, n: number, digest = recordDigest(suite)): SuiteRound {
  if (n === 1) return { n, suite, digest };
  const record = { ...suite, round: n };
  return { n, suite: record, digest: recordDigest(record) };
}

/** The round before this suite's round; null for a first round. */
export function roundBefore(suite: SuiteRecord): SuiteRound | null {
  const { round, ...first } = suite;
  return round === undefined ? null : roundOf(first, round - 1);
}

/** The newest round that has a suite in the store, or else the first round. */
export async function newestRound(
  store: ObjectStore,
  state: Digest,
  suite: SuiteRecord,
  digest?: Digest,
): Promise<SuiteRound> {
  let newest = roundOf(suite, 1, digest);
  for (;;) {
    const next = roundOf(suite, newest.n + 1);
    if ((await store.head(evaluationSuiteKey(state, next.digest))) === null) return newest;
    newest = next;
  }
}

/** The newest round that has a result, or null. */
export async function newestResult(
  store: ObjectStore,
  state: Digest,
  suite: SuiteRecord,
  digest?: Digest,
): Promise<SuiteRound | null> {
  for (let { n } = await newestRound(store, state, suite, digest); n > 0; n--) {
    const round = roundOf(suite, n, digest);
    if ((await store.head(evaluationResultKey(state, round.digest))) !== null) return round;
  }
  return null;
}
