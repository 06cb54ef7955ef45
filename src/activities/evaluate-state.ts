// evaluateState: a state on one of its run's own suites of held-out tasks.
import type { EvaluatedState, StepReference } from './contracts.js';
import type { NodeDeps } from './node-deps.js';
import { evaluateSuite } from './suite-evaluation.js';
import { readEvaluationEpisodes } from '../store/evaluation-episodes.js';
import { mostFrequentReason, reasonText } from '../rl/unknown-outcomes.js';
import type { RunSuite } from '../spec/schedule.js';
import { recordDigest } from '../store/canonical.js';
import { checkOwner } from '../store/owners.js';
import { readNumerics, readState } from '../store/run-records.js';
import { runSuiteOf } from '../sweeps/suite-tasks.js';

export async function evaluateState(
  deps: NodeDeps,
  input: StepReference & { suite: RunSuite },
): Promise<EvaluatedState> {
  const { store } = deps;
  const { run, step } = input;
  await checkOwner(store, run, input.owner);
  const data = await deps.runs.get(run);
  const suite = runSuiteOf(input.suite, { ...data, numerics: await readNumerics(store, run) });
  const what = { run, step, state: await readState(store, run, step), suite, suiteOf: run };
  const result = await evaluateSuite(deps, { ...what, suiteDigest: recordDigest(suite) }, () =>
    Promise.resolve(data),
  );
  const { state, suite: suiteDigest, suite_name, pass_at_1, graded, unknown } = result;
  const reason = unknown === 0 ? null : mostFrequentReason(await readEvaluationEpisodes(store, { result }));
  return {
    ...{ state, suite: suiteDigest, suite_name, pass_at_1, graded, unknown },
    ...(reason === null ? {} : { unknown_reason: reasonText(reason) }),
  };
}
