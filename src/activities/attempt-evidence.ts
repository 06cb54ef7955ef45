// Attempt records: evidence for checkers, never truth (R9, R27).
import { hostname } from 'node:os';
import { ApplicationFailure } from '@temporalio/common';
import type { AttemptScope } from './scope.js';
import type { AttemptRecord } from '../spec/records.js';
import { canonicalText, sha256Hex } from '../store/canonical.js';
import { activityFolder, attemptFolder } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { appendSequence, readRecord } from '../store/records.js';

/** Failures on the same verb and input, in the sight of a living worker, after which a retry has no reason to succeed. */
const maxFailuresWithoutProgress = 5;

export interface EvidenceWriter {
  /** Before the first token of these episodes is sampled. */
  starts(keys: string[]): Promise<void>;
  /** Throws `NoProgress` at the fifth failure of this verb on this input. */
  failed(verb: string, input: unknown, error: Error): Promise<void>;
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
    failed: async (verb, input, error) => {
      const digest = sha256Hex(canonicalText(input));
      await write({ starts: [], failures: [{ verb, input: digest, message: error.message.slice(0, 500) }] });
      const failures = await countFailures(store, activityFolder(run, step, activity), verb, digest);
      if (failures >= maxFailuresWithoutProgress) {
        throw ApplicationFailure.nonRetryable(
          `${verb} failed ${failures} times on the same input, last with: ${error.message}. ` +
            `Mend the cause, then: longhaul resume ${run}`,
          'NoProgress',
        );
      }
    },
  };
}

async function countFailures(
  store: ObjectStore,
  prefix: string,
  verb: string,
  input: string,
): Promise<number> {
  let count = 0;
  for await (const { key } of store.list(prefix)) {
    const record = await readRecord(store, key, 'attempt');
    count +=
      record?.failures?.filter((failure) => failure.verb === verb && failure.input === input).length ?? 0;
  }
  return count;
}
