// evaluatePair: evaluates one state on one suite of a sweep. Episodes that a run or another sweep has already played are reused.
import { pairOf, readSweep, type SweepPair } from '../../store/evaluations/sweeps.js';
import { keepingDivergence } from '../attempt/attempt-evidence.js';
import type { NodeDeps } from '../node-deps.js';
import { recovering } from '../attempt/recovery.js';
import type { RunData } from '../../data/run-data.js';
import { withRunView } from '../attempt/run-view.js';
import { identitiesOnNode } from './environment-identities.js';
import { environmentsNow } from '../../store/runs/owners.js';
import { evaluateSuite } from './suite-evaluation.js';
import { projectTrajectories } from './trajectories.js';
import type { SuiteRecord } from '../../spec/records/evaluation-records.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import { readEvaluationEpisodes } from '../../store/runs/episodes.js';
import { environmentsOf } from '../../sweeps/suite-tasks.js';
import type { EvaluatedPair, SweepNodeActivities } from '../sweep-contracts.js';

/** `suitesOf`: the run from which the suite takes its tasks and settings. */
type PlacedPair = SweepPair & { suitesOf: string };

export function evaluatePair(deps: NodeDeps): SweepNodeActivities['evaluatePair'] {
  const evaluate = withRunView(deps, recovering(keepingDivergence(evaluatePlaced)));
  return async ({ sweep, pair }) => {
    const record = await readSweep(deps.store, sweep);
    return evaluate({ ...pairOf(record, pair), suitesOf: record.suites_of });
  };
}

async function evaluatePlaced(deps: NodeDeps, pair: PlacedPair): Promise<EvaluatedPair> {
  const started = performance.now();
  const { run, step, state, suite, suitesOf } = pair;
  const source = await deps.runs.get(suitesOf);
  const environments = await environmentsNow(deps.store, source.record);
  const what = { run, step, state, suite: suite.record, suiteOf: suitesOf, environments, isOwn: false };
  const evaluated = await evaluateSuite(deps, what, async () => {
    await refuseOtherEnvironments(deps, source, environments, suite.record);
    return dataOf(deps, run, source);
  });
  const { observed: _, ...result } = evaluated.result;
  if (evaluated.episodes === null) {
    const played = await readEvaluationEpisodes(deps.store, evaluated);
    await projectTrajectories(
      deps.store,
      await dataOf(deps, run, source),
      step,
      evaluated.suite,
      played,
      result,
    );
  }
  const { pass_at_1, graded, unknown } = result;
  const seconds = Math.round(performance.now() - started) / 1000;
  return { state, pass_at_1, graded, unknown, seconds };
}

/** Fails if the environments are not those named in the suite: episodes played on other environments would belong to another suite. */
async function refuseOtherEnvironments(
  deps: NodeDeps,
  source: RunData,
  environments: readonly EnvironmentSpec[],
  suite: SuiteRecord,
): Promise<void> {
  const now = await identitiesOnNode(deps, source, environments, environmentsOf(suite));
  const changed = Object.keys(now).filter((name) => now[name] !== suite.environments[name]);
  if (changed.length === 0) return;
  throw new InvalidSpec([
    {
      path: 'environments',
      problem: `${changed.join(' and ')}: the server’s tools, version or reward rule changed after the sweep was planned`,
      fix: 'start the sweep again under another id, or restore the earlier server',
    },
  ]);
}

/** The data of the state's run, with the tasks and environments of `source`, the run that supplies the suites. */
async function dataOf(deps: NodeDeps, run: string, source: RunData): Promise<RunData> {
  const own = await deps.runs.get(run);
  const { record, ...suites } = source;
  if (run === record.run) return own;
  const { environments } = record.spec;
  return {
    ...own,
    ...suites,
    record: { ...own.record, spec: { ...own.record.spec, environments } },
  };
}
