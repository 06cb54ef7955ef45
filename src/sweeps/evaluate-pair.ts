// evaluatePair: a state on a suite of a sweep. What a run or another sweep has played of it is adopted.
import { attemptEvidence, keepingDivergence } from '../activities/attempt-evidence.js';
import { summarise } from '../activities/evaluate-state.js';
import { withFailures } from '../activities/failure-mapping.js';
import type { NodeDeps } from '../activities/node-deps.js';
import { recovering } from '../activities/recovery.js';
import { fillSeats, type Seat } from '../activities/rollouts.js';
import type { RunData } from '../activities/run-data.js';
import { withRunView } from '../activities/run-view.js';
import { currentScope } from '../activities/scope.js';
import { projectTrajectories } from '../activities/trajectories.js';
import type { EvaluationResult } from '../spec/evaluation-records.js';
import {
  evaluationEpisodeKey,
  evaluationEpisodesFolder,
  evaluationResultKey,
  evaluationSuiteKey,
} from '../store/layout.js';
import { adoptOrCreate, readRecord } from '../store/records.js';
import type { EvaluatedPair, SweepNodeActivities } from './sweep-contracts.js';
import { pairOf, readSweep, type SweepPair } from './sweep-record.js';

type Placed = SweepPair & { sweep: string; suitesOf: string };

export function createSweepNodeActivities(deps: NodeDeps): SweepNodeActivities {
  const evaluate = withRunView(deps, recovering(keepingDivergence(evaluatePair)));
  return {
    evaluatePair: withFailures(async ({ sweep, pair }) => {
      const record = await readSweep(deps.store, sweep);
      return evaluate({ ...pairOf(record, pair), sweep, suitesOf: record.suites_of });
    }),
  };
}

async function evaluatePair(deps: NodeDeps, pair: Placed): Promise<EvaluatedPair> {
  const { store } = deps;
  const { run, step, state, suite } = pair;
  const started = performance.now();
  const resultKey = evaluationResultKey(state, suite.digest);
  const existing = await readRecord(store, resultKey, 'evaluation');
  if (existing) return answer(existing, 0, started);
  await adoptOrCreate(store, evaluationSuiteKey(state, suite.digest), 'suite', suite.record);
  const data = await dataOf(deps, pair);
  const folder = evaluationEpisodesFolder(state, suite.digest);
  const before = new Set(await store.listFolder(folder));
  const seats = seatsOf(pair, data);
  const scope = currentScope();
  const episodes = await fillSeats(
    deps,
    {
      data,
      plan: suite.digest,
      state,
      policyStep: step,
      sampling: suite.record.sampling,
      random: { seed: suite.record.seed, domain: 'eval', step: 0 },
      folder,
      seats,
    },
    scope,
    attemptEvidence(store, run, Math.max(step, 0), scope, deps.life),
  );
  const result = summarise(episodes, suite.record, suite.digest, state);
  await projectTrajectories(store, data, step, suite.record, episodes, result);
  const stored = await adoptOrCreate(store, resultKey, 'evaluation', {
    ...result,
    observed: {
      run,
      step,
      seconds: (performance.now() - started) / 1000,
      committed_at: new Date().toISOString(),
      metrics: {},
    },
  });
  const played = seats.filter(({ key }) => !before.has(key.slice(folder.length))).length;
  return answer(stored.record, played, started);
}

/** The state's run, with the tasks and environments of the run that the suites are of. */
async function dataOf(deps: NodeDeps, { run, suitesOf }: Placed): Promise<RunData> {
  const own = await deps.runs.get(run);
  if (run === suitesOf) return own;
  const { record: of, ...suites } = await deps.runs.get(suitesOf);
  const { environments } = of.spec;
  return {
    ...own,
    ...suites,
    record: { ...own.record, spec: { ...own.record.spec, environments } },
  };
}

function seatsOf({ state, suite, suitesOf }: Placed, data: RunData): Seat[] {
  const seats: Seat[] = [];
  for (const [slot, { task_key, seed }] of suite.record.tasks.entries()) {
    const task = data.taskByKey.get(task_key);
    if (!task)
      throw new Error(
        `suite ${suite.label} names task ${task_key}, which the dataset of ${suitesOf} does not hold`,
      );
    for (let sample = 0; sample < suite.record.samples_per_task; sample++) {
      const key = evaluationEpisodeKey(state, suite.digest, slot, sample);
      seats.push({ key, slot, sample, task, seed });
    }
  }
  return seats;
}

function answer(result: EvaluationResult, played: number, started: number): EvaluatedPair {
  const { state, pass_at_1, graded, unknown } = result;
  const seconds = Math.round(performance.now() - started) / 1000;
  return { state, pass_at_1, graded, unknown, played, seconds };
}
