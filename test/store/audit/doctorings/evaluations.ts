// Doctored evaluation results, which contradict their suites or episodes.
import * as layout from '../../../../src/store/record-keys.js';
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
    what: 'an evaluation counts an unknown outcome as graded',
    rule: 'R25',
    at: evalResult,
    doctor: (store) => store.edit(evalEpisode(), 'episode', (record) => (record.outcome = unknown)),
  },
  {
    what: 'an evaluation counts an unknown outcome as a failure in pass@1',
    rule: 'R25',
    at: evalResult,
    names: 'pass_at_1 is 0.5, but its episodes give 1',
    doctor: (store) => evaluated(store, [passed, unknown], 0.5),
  },
  {
    what: 'an evaluation adds the value of a partial reward to pass@1',
    rule: 'R25',
    at: evalResult,
    names: 'pass_at_1 is 0.75, but its episodes give 0.5',
    doctor: (store) => evaluated(store, [passed, { status: 'graded', value: 0.5 }], 0.75),
  },
  {
    what: 'an evaluation reports a pass@1 that its episodes do not give',
    rule: 'R25',
    ...edited(evalResult, 'evaluation', (result) => (result.pass_at_1 = result.pass_at_1 === 1 ? 0.5 : 1)),
  },
  {
    what: 'an evaluation whose episode is missing',
    rule: 'R8',
    at: evalEpisode,
    doctor: (store) => store.remove(evalEpisode()),
  },
  {
    what: 'a suite whose content does not match the digest in its key',
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
    what: 'an evaluation that names another state than its key',
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
    names: 'it has task',
    ...edited(evalEpisode, 'episode', (record) => (record.task_key = 'another')),
  },
  {
    what: "an evaluation's episode is stored under another slot",
    rule: 'R8',
    at: () => evalEpisode(1),
    names: 'it says slot 0',
    doctor: (store) => store.write(evalEpisode(1), store.bytes(evalEpisode(0))),
  },
  {
    what: 'an evaluation has an episode for which its suite has no task',
    rule: 'R8',
    at: () => evalEpisode(9),
    names: 'no such task',
    doctor: (store) => store.write(evalEpisode(9), store.bytes(evalEpisode(0))),
  },
  {
    what: "an environment's mean number of turns does not match its episodes",
    rule: 'R25',
    names: '.mean_turns is',
    ...edited(evalResult, 'evaluation', ({ environments }) => {
      for (const figures of Object.values(environments)) figures.mean_turns += 1;
    }),
  },
  {
    what: "a template's number of passes does not match its episodes",
    rule: 'R25',
    names: '.passed is',
    ...edited(evalResult, 'evaluation', ({ templates }) => {
      for (const figures of Object.values(templates)) figures.passed += 1;
    }),
  },
];
