// Attempt records: evidence for checkers, never truth (R9, R19).
import { hostname } from 'node:os';
import type { AttemptScope } from './scope.js';
import type { AttemptRecord, Digest } from '../spec/records.js';
import { canonicalText } from '../store/canonical.js';
import { attemptFolder } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { appendSequence } from '../store/records.js';
import type { Diverged } from '../store/store-errors.js';

export interface EvidenceWriter {
  /** Before the first token of these episodes is sampled. */
  starts(keys: string[]): Promise<void>;
  /** A computation that disagrees with the stored record: both results are kept (R19). */
  diverged(verb: string, input: Digest, error: Diverged): Promise<void>;
}

export function attemptEvidence(
  store: ObjectStore,
  run: string,
  step: number,
  scope: AttemptScope,
  node: string,
): EvidenceWriter {
  const activity = scope.activity.replace(/^step-\d+\//, '').replaceAll('/', '-');
  const write = (part: Pick<AttemptRecord, 'starts' | 'failures'>): Promise<unknown> =>
    appendSequence(store, attemptFolder(run, step, activity, scope.attempt), 'attempt', (n) => ({
      schema: 'longhaul.attempt/1',
      activity: scope.activity,
      attempt: scope.attempt,
      n,
      ...part,
      observed: { node: `${node}@${hostname()}`, pid: process.pid, at: new Date().toISOString() },
    }));
  return {
    starts: async (keys) => {
      if (keys.length > 0) await write({ starts: keys });
    },
    diverged: async (verb, input, { message, evidence }) => {
      await write({
        starts: [],
        failures: [{ verb, input, message: canonicalText({ message, ...evidence }) }],
      });
    },
  };
}
