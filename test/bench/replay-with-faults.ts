// Plays a run's final evaluation once more, with the same policy and the same random numbers, while the environment server fails a fifth of
// all calls. An infrastructure failure must never change a grade: each outcome must be the recorded one, or unknown.
import { textCoder } from '../../src/episode/conversation.js';
import { DatasetCache } from '../../src/data/dataset-cache.js';
import { nativePolicyHolder } from '../../src/policy/native-state-keeper.js';
import { RunDataCache } from '../../src/data/run-data.js';
import { createNativeEngine } from '../../src/engine/native/native-engine.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import { playEpisode } from '../../src/episode/episode-loop.js';
import type { SuiteRecord } from '../../src/spec/records/evaluation-records.js';
import type { EpisodeRecord } from '../../src/spec/records/episode.js';
import { evaluationEpisodeKey, evaluationsOfState, evaluationSuiteKey } from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { readRecord, requireRecord } from '../../src/store/records/records.js';
import { lastCommittedStep, readState } from '../../src/store/runs/run-records.js';
import { findEngineBinary } from '../../src/workers/process/built-tool.js';
import { withFaults } from '../environments/faulty-backend.js';

export interface FalseZeroFigures {
  episodes: number;
  /** Episodes with grade 0 whose undisturbed episode had a higher grade. */
  false_zeros: number;
  /** Episodes whose grade differs from that of the undisturbed episode. */
  changed: number;
  /** Episodes with at least one failure. If this is 0, nothing was measured. */
  met_a_fault: number;
  /** Episodes without a grade, because their calls failed too often. */
  unknown: number;
  /** Undisturbed episodes with a grade above 0. Only these could become a false zero. */
  passed_undisturbed: number;
}

export interface FaultyReplay {
  store: ObjectStore;
  run: string;
  environments: { url: string; token: string };
  faultRate: number;
  /** Folder for restored states. */
  scratch: string;
}

const sessionsAtOnce = 64;
/** Time limit of a call, within which a dropped connection or answer is noticed. */
const callTimeoutMs = 5_000;

export async function replayWithFaults(options: FaultyReplay): Promise<FalseZeroFigures> {
  const { store, run, environments, faultRate } = options;
  const engine = createNativeEngine({ binary: findEngineBinary() });
  const { url, token: gradingToken } = environments;
  const backend = withFaults(
    createOpenEnvBackend({ url, gradingToken, maxSessions: sessionsAtOnce, callTimeoutMs }),
    { fault_rate: faultRate },
  );
  const holder = nativePolicyHolder({
    ...{ store, engine, folder: options.scratch },
    log: () => undefined,
  });
  try {
    const step = await lastCommittedStep(store, run);
    const { suite, digest } = await largestSuite(store, await readState(store, run, step));
    const data = await new RunDataCache(store, new DatasetCache(store)).get(run);
    const play = async (
      state: string,
      slot: number,
    ): Promise<{ calm: EpisodeRecord; outcome: EpisodeRecord['outcome']; failures: number }> => {
      const key = evaluationEpisodeKey(state, digest, slot, 0);
      const calm = await requireRecord(store, key, 'episode');
      const task = data.taskByKey.get(calm.task_key);
      if (!task) throw new Error(`the dataset of ${run} does not hold task ${calm.task_key}`);
      const { outcome, failures } = await playEpisode(
        { engine, backend, ...textCoder(data) },
        {
          ...{ task, state, sampling: suite.sampling, policyStep: step, episodeId: key },
          key: { seed: suite.seed, domain: 'eval', step: 0, slot, sample: 0 },
          episodeSeed: suite.tasks[slot]?.seed ?? 0,
          maxWaitMs: 60_000,
        },
        AbortSignal.timeout(5 * 60_000),
      );
      return { calm, outcome, failures: Object.values(failures).reduce((sum, count) => sum + count, 0) };
    };
    const played = await holder.withState(run, step, 'visitor', (state) =>
      Promise.all(suite.tasks.map((_, slot) => play(state, slot))),
    );
    const value = (outcome: EpisodeRecord['outcome']): number | null =>
      outcome.status === 'graded' ? outcome.value : null;
    const count = (test: (calm: number | null, faulty: number | null) => boolean): number =>
      played.filter(({ calm, outcome }) => test(value(calm.outcome), value(outcome))).length;
    return {
      episodes: played.length,
      false_zeros: count((calm, faulty) => faulty === 0 && calm !== 0),
      changed: count((calm, faulty) => faulty !== null && faulty !== calm),
      met_a_fault: played.filter(({ failures }) => failures > 0).length,
      unknown: count((_, faulty) => faulty === null),
      passed_undisturbed: count((calm) => (calm ?? 0) > 0),
    };
  } finally {
    await backend.close();
    await engine.close();
  }
}

async function largestSuite(
  store: ObjectStore,
  state: string,
): Promise<{ suite: SuiteRecord; digest: string }> {
  const found = [];
  for (const name of await store.listFolder(evaluationsOfState(state))) {
    const digest = name.replace(/\/$/, '');
    const suite = await readRecord(store, evaluationSuiteKey(state, digest), 'suite');
    if (suite) found.push({ suite, digest });
  }
  const [largest] = found.sort((a, b) => b.suite.tasks.length - a.suite.tasks.length);
  if (!largest) throw new Error(`state ${state} was never evaluated: there is nothing to play again`);
  return largest;
}
