// Writes attempt records. They are evidence for audits and never decide what a run does (R9, R19).
import { currentAccount } from './attempt-account.js';
import type { ProcessLife } from './process-life.js';
import { currentScope } from './scope.js';
import { type AttemptScope } from '../../policy/attempt-scope.js';
import type { AttemptRecord } from '../../spec/records/attempt-records.js';
import type { Digest } from '../../spec/records/parts.js';
import { canonicalText, recordDigest } from '../../store/records/canonical.js';
import { attemptFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { appendSequence } from '../../store/records/records.js';
import { isOfSweep } from '../../store/runs/step-attempts.js';
import { Diverged } from '../../store/record-errors.js';

/** In seconds. A shorter wait is normal for a busy server and is not recorded. */
const shortestWait = 0.1;

export interface EvidenceWriter {
  /** Call before the first token of these episodes is sampled. */
  starts(keys: string[]): Promise<void>;
  /**
   * Call when an episode was sampled to its end but the store already held another worker's record. The record then proves that the episode
   * was sampled twice (R9).
   */
  discarded(key: string): Promise<void>;
  /** Records the failures before this attempt, unless a record already contains them. */
  recovered(): Promise<void>;
  /** Records a computation that disagrees with the stored record, with both results (R19). */
  diverged(verb: string, input: Digest, error: Diverged): Promise<void>;
}

export function attemptEvidence(
  store: ObjectStore,
  run: string,
  step: number,
  scope: AttemptScope,
  life: ProcessLife,
): EvidenceWriter {
  const activity = nameWithoutStep(scope).replaceAll('/', '-');
  const account = currentAccount();
  const write = async (part: Pick<AttemptRecord, 'starts' | 'discarded' | 'failures'>): Promise<void> => {
    const news = account.hasNews(shortestWait)
      ? { recoveries: await account.recoveries(), waited_seconds: account.unrecordedWait }
      : {};
    await appendSequence(store, attemptFolder(run, step, activity, scope.attempt), 'attempt', (n) => ({
      schema: 'longhaul.attempt/2',
      activity: scope.activity,
      attempt: scope.attempt,
      n,
      ...part,
      observed: { node: life.node, pid: life.process.pid, at: new Date().toISOString(), ...news },
    }));
    if (!('recoveries' in news)) return;
    account.recorded();
    // Faults of a sweep do not count as the run's.
    if (!isOfSweep(scope.activity)) life.recorded(run, news.recoveries);
  };
  return {
    recovered: async () => {
      if (account.hasNews(shortestWait)) await write({ starts: [] });
    },
    starts: async (keys) => {
      if (keys.length > 0) await write({ starts: keys });
    },
    discarded: (key) => write({ starts: [], discarded: [key] }),
    diverged: async (verb, input, { message, evidence }) => {
      await write({
        starts: [],
        failures: [{ verb, input, message: canonicalText({ message, ...evidence }) }],
      });
    },
  };
}

interface EvidenceDeps {
  store: ObjectStore;
  life: ProcessLife;
  log(message: string): void;
}

/** Records both results when a divergence ends the activity, wherever in the activity it occurred (R19). */
export function keepingDivergence<Deps extends EvidenceDeps, I extends { run: string; step?: number }, O>(
  activity: (deps: Deps, input: I) => Promise<O>,
): (deps: Deps, input: I) => Promise<O> {
  return async (deps, input) => {
    try {
      return await activity(deps, input);
    } catch (error) {
      if (!(error instanceof Diverged) || !error.evidence) throw error;
      const scope = currentScope();
      const evidence = attemptEvidence(deps.store, input.run, input.step ?? 0, scope, deps.life);
      // Report the divergence even if the store does not accept its evidence.
      await evidence
        .diverged(nameWithoutStep(scope), recordDigest(input), error)
        .catch((problem: Error) =>
          deps.log(`the evidence of a divergence could not be stored: ${problem.message}`),
        );
      throw error;
    }
  };
}

function nameWithoutStep({ activity }: AttemptScope): string {
  return activity.replace(/^step-\d+\//, '');
}
