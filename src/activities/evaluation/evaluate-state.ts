// evaluateState: evaluates a state on one of its run's own suites of held-out tasks. The evaluation may have been played by this run or by
// another one. If the run's record already names it, the activity answers without asking an environment.
import type { EvaluatedState, StepReference } from '../contracts.js';
import { identitiesOnNode } from './environment-identities.js';
import type { NodeDeps } from '../node-deps.js';
import { evaluateSuite } from './suite-evaluation.js';
import { projectTrajectories } from './trajectories.js';
import { mostFrequentReason, reasonText } from '../../rl/grades.js';
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import type { RunSuite } from '../../spec/schedule.js';
import { readEvaluationEpisodes } from '../../store/runs/episodes.js';
import { runEvaluationKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { checkOwner, environmentsNow } from '../../store/runs/owners.js';
import { adoptOrCreate, readRecord } from '../../store/records/records.js';
import { readEvaluated } from '../../store/evaluations/run-evaluations.js';
import { readNumerics, readState } from '../../store/runs/run-records.js';
import { environmentsOf, runSuiteOf, type SuiteSource } from '../../sweeps/suite-tasks.js';

export async function evaluateState(
  deps: NodeDeps,
  input: StepReference & { suite: RunSuite },
): Promise<EvaluatedState> {
  const { store } = deps;
  const { run, step, suite: name } = input;
  await checkOwner(store, run, input.owner);
  const key = runEvaluationKey(run, step, name);
  const named = await readRecord(store, key, 'evaluated');
  // Null also if the record was quarantined; the evaluation is then played again.
  const known = named && (await readEvaluated(store, named));
  if (known) return answer(store, known);
  const data = await deps.runs.get(run);
  const unasked: SuiteSource = { ...data, numerics: await readNumerics(store, run), identities: {} };
  const environments = await environmentsNow(store, data.record);
  const names = environmentsOf(runSuiteOf(name, unasked));
  const identities = await identitiesOnNode(deps, data, environments, names);
  const state = await readState(store, run, step);
  const what = { run, step, state, suiteOf: run, environments, isOwn: true };
  const suite = runSuiteOf(name, { ...unasked, identities });
  const evaluated = await evaluateSuite(deps, { ...what, suite }, () => Promise.resolve(data));
  const { result, episodes } = evaluated;
  if (episodes === null) {
    const { observed: _, ...figures } = result;
    const played = await readEvaluationEpisodes(store, { result });
    await projectTrajectories(store, data, step, evaluated.suite, played, figures);
  }
  await adoptOrCreate(store, key, 'evaluated', {
    schema: 'longhaul.evaluated/1',
    ...{ run, step, suite_name: name, state, suite: result.suite },
    observed: { at: new Date().toISOString() },
  });
  return answer(store, result);
}

async function answer(store: ObjectStore, result: EvaluationResult): Promise<EvaluatedState> {
  const { state, suite, suite_name, pass_at_1, pass_at_k, graded, unknown } = result;
  const reason = unknown === 0 ? null : mostFrequentReason(await readEvaluationEpisodes(store, { result }));
  return {
    ...{ state, suite, suite_name, pass_at_1, graded, unknown },
    ...(pass_at_k === undefined ? {} : { pass_at_k }),
    ...(reason === null ? {} : { unknown_reason: reasonText(reason) }),
  };
}
