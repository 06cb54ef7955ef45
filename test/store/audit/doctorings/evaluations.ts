// Doctored evaluation results, which contradict their suites or episodes.
import * as layout from '../../../../src/store/objects/layout.js';
import {
  audited,
  type Doctoring,
  edited,
  evalEpisode,
  evalResult,
  otherDigest,
  suiteKey,
} from '../doctored-run.js';
import { evaluated, passed, unknown } from '../../evaluated.js';

export const evaluations: readonly Doctoring[] = [
  {
    what: 'an unknown outcome counts in an evaluation',
    rule: 'R25',
    at: evalResult,
    doctor: (store) => store.edit(evalEpisode(), 'episode', (record) => (record.outcome = unknown)),
  },
  {
    what: 'an unknown outcome of an evaluation entered its pass@1 as a failure',
    rule: 'R25',
    at: evalResult,
    names: 'pass_at_1 is 0.5, its episodes give 1',
    doctor: (store) => evaluated(store, [passed, unknown], 0.5),
  },
  {
    what: 'a partial reward entered pass@1 of an evaluation with its value',
    rule: 'R25',
    at: evalResult,
    names: 'pass_at_1 is 0.75, its episodes give 0.5',
    doctor: (store) => evaluated(store, [passed, { status: 'graded', value: 0.5 }], 0.75),
  },
  {
    what: 'an evaluation says more than its episodes do',
    rule: 'R25',
    ...edited(evalResult, 'evaluation', (result) => (result.pass_at_1 = result.pass_at_1 === 1 ? 0.5 : 1)),
  },
  {
    what: 'an evaluation with an episode too few',
    rule: 'R8',
    at: evalEpisode,
    doctor: (store) => store.remove(evalEpisode()),
  },
  {
    what: 'a suite other than its key says',
    rule: 'R13',
    at: () => layout.evaluationSuiteKey(audited.evaluation.state, audited.evaluation.suite),
    doctor: (store) =>
      store.edit(
        layout.evaluationSuiteKey(audited.evaluation.state, audited.evaluation.suite),
        'suite',
        (suite) => {
          suite.seed += 1;
        },
      ),
  },
  {
    what: 'an evaluation without its suite',
    rule: 'R13',
    at: suiteKey,
    doctor: (store) => store.remove(suiteKey()),
  },
  {
    what: 'an evaluation of another state',
    rule: 'R13',
    names: 'another state or suite',
    ...edited(evalResult, 'evaluation', (result) => (result.state = otherDigest)),
  },
  {
    what: "an evaluation's episode of another suite",
    rule: 'R8',
    names: 'another suite',
    ...edited(evalEpisode, 'episode', (record) => (record.plan = otherDigest)),
  },
  {
    what: "an evaluation's episode of another state",
    rule: 'R8',
    names: 'it was sampled at state',
    ...edited(evalEpisode, 'episode', (record) => (record.state = otherDigest)),
  },
  {
    what: "an evaluation's episode of another task",
    rule: 'R8',
    names: 'it is of task',
    ...edited(evalEpisode, 'episode', (record) => (record.task_key = 'another')),
  },
  {
    what: "an evaluation's episode on another seat",
    rule: 'R8',
    at: () => evalEpisode(1),
    names: 'it says slot 0',
    doctor: (store) => store.write(evalEpisode(1), store.bytes(evalEpisode(0))),
  },
  {
    what: 'an evaluation with an episode more than its suite has tasks',
    rule: 'R8',
    at: () => evalEpisode(9),
    names: 'no such task',
    doctor: (store) => store.write(evalEpisode(9), store.bytes(evalEpisode(0))),
  },
  {
    what: "an environment's turns are not those of its episodes",
    rule: 'R25',
    names: '.mean_turns is',
    ...edited(evalResult, 'evaluation', ({ environments }) => {
      for (const figures of Object.values(environments)) figures.mean_turns += 1;
    }),
  },
  {
    what: "a template's passes are not those of its episodes",
    rule: 'R25',
    names: '.passed is',
    ...edited(evalResult, 'evaluation', ({ templates }) => {
      for (const figures of Object.values(templates)) figures.passed += 1;
    }),
  },
];
