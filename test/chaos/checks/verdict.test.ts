// The verdict on a chaos run: it is a problem if the run differs from the undisturbed run, or if either run is unsound.
import { describe, expect, test } from 'vitest';
import { AuditReport } from '../../../src/store/audit/audit-report.js';
import type { TrialResult } from '../trial.js';
import { problemsOf } from './verdict.js';

const planned = 2;
const trial = (): TrialResult<string> => ({
  chain: Object.assign(new AuditReport('chaos'), {
    ...{ steps: 5, updatesApplied: 4, episodes: 24, zeros: 9, unknown: 1, evaluations: 3, checkpoints: 2 },
    finalState: 'a'.repeat(64),
  }),
  history: { executions: 1, events: 90, updates: 0, steps: 4, largestPayloadBytes: 700, violations: [] },
  secretsIn: [],
  wrongBatches: [],
  leakedSessions: 0,
  disturbances: ['one', 'two'],
  seconds: 9,
});
const chainViolation = { rule: 'R9', key: 'runs/chaos/x', problem: 'it was started again' } as const;
const historyViolation = { rule: 'R21', at: 'train/chaos event 7', problem: 'it has no record' } as const;

/**
 * Ways in which a run may be unsound. They are problems in the undisturbed run, too, because a comparison with an unsound run would mean
 * nothing.
 */
const unsound: { what: string; harm: (run: TrialResult<string>) => void; problem: string }[] = [
  {
    what: 'a violation in the run’s records',
    harm: ({ chain }) => void chain.violations.push(chainViolation),
    problem: 'R9 runs/chaos/x: it was started again',
  },
  {
    what: 'a violation in the run’s histories',
    harm: ({ history }) => void history.violations.push(historyViolation),
    problem: 'R21 train/chaos event 7: it has no record',
  },
  {
    what: 'a run without a history',
    harm: ({ history }) => void (history.events = 0),
    problem: 'the server knows no history of it',
  },
  {
    what: 'a batch with other targets than its episodes give',
    harm: ({ wrongBatches }) => void wrongBatches.push('batch: it has 2 targets, its episodes give 3'),
    problem: 'batch: it has 2 targets, its episodes give 3',
  },
  {
    what: 'a secret that the run wrote',
    harm: ({ secretsIn }) => void secretsIn.push('logs/node.log'),
    problem: 'a secret is in logs/node.log',
  },
  {
    what: 'a session that the run left behind',
    harm: (run) => void (run.leakedSessions = 1),
    problem: '1 sessions of the environment server were leaked',
  },
];

test('two equal runs have no problem', () => {
  expect(problemsOf(trial(), trial(), planned)).toEqual([]);
});

test('different checkpoints are no problem, because faults cause them', () => {
  const disturbed = trial();
  disturbed.chain.checkpoints = 1;
  expect(problemsOf(trial(), disturbed, planned)).toEqual([]);
});

describe('a problem is', () => {
  test.each(unsound)('$what', ({ harm, problem }) => {
    const [calm, disturbed] = [trial(), trial()];
    harm(disturbed);
    expect(problemsOf(calm, disturbed, planned)).toEqual([`disturbed run: ${problem}`]);
    expect(problemsOf(disturbed, trial(), planned)).toEqual([`undisturbed run: ${problem}`]);
  });

  test.each(['steps', 'updatesApplied', 'episodes', 'zeros', 'unknown', 'evaluations'] as const)(
    'a different number: %s',
    (figure) => {
      const [calm, disturbed] = [trial(), trial()];
      disturbed.chain[figure] += 1;
      expect(problemsOf(calm, disturbed, planned, 'faults')).toEqual([
        `${figure}: ${calm.chain[figure]} undisturbed, ${disturbed.chain[figure]} with faults`,
      ]);
    },
  );

  test('a different final state', () => {
    const disturbed = trial();
    disturbed.chain.finalState = 'b'.repeat(64);
    expect(problemsOf(trial(), disturbed, planned)).toEqual([
      `the final states differ: ${'a'.repeat(64)} and ${'b'.repeat(64)}`,
    ]);
  });

  test('a missing final state', () => {
    const [calm, disturbed] = [trial(), trial()];
    for (const { chain } of [calm, disturbed]) chain.finalState = null;
    expect(problemsOf(calm, disturbed, planned)).toEqual(['the final states differ: null and null']);
  });

  test('fewer faults than planned', () => {
    const disturbed = { ...trial(), disturbances: ['one'] };
    expect(problemsOf(trial(), disturbed, planned, 'faults')).toEqual(['only 1 of 2 faults met an open run']);
  });
});
