// Tests the audit of histories on a real run's history with one change at a time. If the audit misses a change here, it would also miss
// that change in a chaos run.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type {
  CollectedRollouts,
  CommittedStep,
  ControlState,
  EvaluatedState,
  OpenedRun,
  PlannedStep,
} from '../../../src/activities/contracts.js';
import {
  DoctoredHistory,
  forgetHistory,
  recordedExecutions,
  recordHistory,
  secret,
} from './doctored-history.js';
import type { HistoryViolation } from './history-audit.js';

beforeAll(recordHistory, 120_000);
afterAll(forgetHistory);

const otherDigest = '0'.repeat(64);
const doctorings: {
  what: string;
  rule: HistoryViolation['rule'];
  /** A text that the violation must also contain. */
  names?: string;
  doctor: (history: DoctoredHistory) => void;
}[] = [
  {
    what: 'a payload is larger than a history should hold',
    rule: 'size',
    doctor: (history) =>
      history.editResult<{ padding?: string }>('writeReport', (result) => {
        result.padding = 'x'.repeat(10 * 1024);
      }),
  },
  {
    what: 'a payload holds a secret',
    rule: 'secrets',
    doctor: (history) =>
      history.editInput<{ hint?: string }>('openRun', (input) => {
        input.hint = `the key is ${secret}`;
      }),
  },
  {
    what: 'a text beside the payloads holds a secret in base64',
    rule: 'secrets',
    doctor: ({ events }) => Object.assign(events[3]!, { identity: Buffer.from(secret).toString('base64') }),
  },
  {
    what: 'an activity never ended',
    rule: 'ends',
    doctor: (history) => history.remove(history.completed('uploadCheckpoint')),
  },
  {
    what: 'an Update was never answered',
    rule: 'ends',
    doctor: (history) => history.remove(history.answered('resume')),
  },
  {
    what: 'a step is left out',
    rule: 'R5',
    doctor: (history) =>
      history.remove(history.scheduled('updatePolicy', 2), history.completed('updatePolicy', 2)),
  },
  {
    what: 'an earlier step is committed again',
    rule: 'R5',
    doctor: (history) => history.editResult<CommittedStep>('updatePolicy', (result) => (result.step = 1), 2),
  },
  {
    what: 'a step is committed twice, although no lease had ended',
    rule: 'R5',
    names: 'it commits step 2, the next one is 3',
    doctor: (history) => history.repeat('updatePolicy', 2),
  },
  {
    what: 'a step is committed twice, although a lease was only granted in between',
    rule: 'R5',
    doctor: (history) => history.repeat('updatePolicy', 2, 'granted'),
  },
  {
    what: 'the run opens at another step than its records have reached',
    rule: 'R5',
    doctor: (history) => history.editResult<OpenedRun>('openRun', ({ position }) => (position.step = 1)),
  },
  {
    what: 'a new execution opens before the step at which the previous execution ended',
    rule: 'R5',
    names: 'it opens at step 1, the one before ended at 2',
    doctor: (history) => history.continueAsNewBefore(3, 1),
  },
  {
    what: 'the run was opened by another execution than its owner record says',
    rule: 'R4',
    names: 'it returned the execution of the owner another',
    doctor: (history) =>
      history.editInput<{ workflow: { firstExecutionRunId: string } }>('openRun', ({ workflow }) => {
        workflow.firstExecutionRunId = 'another';
      }),
  },
  {
    what: 'an Update is answered with an earlier control number than its record has',
    rule: 'R21',
    names: 'it was answered with control',
    doctor: (history) => history.editAnswer<ControlState>('checkpointNow', (answer) => (answer.n -= 1)),
  },
  {
    what: 'the run ended before its last committed step',
    rule: 'R5',
    doctor: (history) => history.editOutcome<{ step: number }>((result) => (result.step -= 1)),
  },
  {
    what: 'the run ended with another state',
    rule: 'R4',
    doctor: (history) => history.editOutcome<{ state: string }>((result) => (result.state = otherDigest)),
  },
  {
    what: 'a step is updated with another plan than its planning returned',
    rule: 'R7',
    doctor: (history) =>
      history.editInput<{ plan: string }>('updatePolicy', (input) => (input.plan = otherDigest), 2),
  },
  {
    what: 'a step is updated before it was planned',
    rule: 'R7',
    doctor: (history) => history.move(history.completed('planStep', 3), history.events.at(-1)!),
  },
  {
    what: 'a step is updated although some slots were never played',
    rule: 'R8',
    doctor: (history) =>
      history.editInput<{ slots: number[] }>('collectRollouts', (input) => (input.slots = [0, 1]), 3),
  },
  {
    what: 'a step is updated before its rollouts are over',
    rule: 'R8',
    doctor: (history) => history.move(history.completed('collectRollouts', 3), history.events.at(-1)!),
  },
  ...(
    [
      ['planStep', 'another plan', (result: PlannedStep) => (result.plan = otherDigest)],
      ['planStep', 'another number of slots', (result: PlannedStep) => (result.slots += 1)],
      ['collectRollouts', 'another mean reward', (result: CollectedRollouts) => (result.mean_reward = 0.77)],
      [
        'collectRollouts',
        'a grade for an unknown outcome',
        (result: CollectedRollouts) => (result.graded -= 1),
      ],
      ['updatePolicy', 'another state', (result: CommittedStep) => (result.state = otherDigest)],
      ['updatePolicy', 'that nothing was applied', (result: CommittedStep) => (result.applied = false)],
      ['updatePolicy', 'another loss', ({ metrics }: CommittedStep) => (metrics['policy/final_loss'] = -1)],
      ['evaluateState', 'another score', (result: EvaluatedState) => (result.pass_at_1 = 0.77)],
      ['evaluateState', 'another suite', (result: EvaluatedState) => (result.suite = otherDigest)],
      ['commitBase', 'another base', (result: { state: string }) => (result.state = otherDigest)],
      ['openRun', 'another owner', (result: OpenedRun) => (result.owner = 7)],
      [
        'uploadCheckpoint',
        'a checkpoint that does not exist',
        (result: { key: string }) => (result.key += 'x/'),
      ],
      ['writeReport', 'a report that does not exist', (result: { key: string }) => (result.key += '.x')],
      ['recordControl', 'an older control number', (result: ControlState) => (result.n = 0)],
    ] as const
  ).map(([type, what, change]) => ({
    what: `${type} returned ${what}`,
    rule: 'R4' as const,
    doctor: (history: DoctoredHistory) =>
      history.editResult(
        type,
        change as (result: unknown) => void,
        type === 'planStep' || type === 'updatePolicy' ? 3 : undefined,
      ),
  })),
  {
    what: 'a control record holds another change than the Update requested',
    rule: 'R4',
    doctor: (history) =>
      history.editInput<{ change: object }>('recordControl', (input) => (input.change = { kind: 'resume' })),
  },
  {
    what: 'an Update is answered without a record',
    rule: 'R21',
    doctor: (history) => {
      const { acceptedRequest } =
        history.accepted('checkpointNow').workflowExecutionUpdateAcceptedEventAttributes!;
      history.answered('checkpointNow').workflowExecutionUpdateCompletedEventAttributes!.meta.updateId =
        'other';
      acceptedRequest.meta.updateId = 'other';
    },
  },
  {
    what: 'a control record names an Update that nobody sent',
    rule: 'R21',
    doctor: (history) => history.remove(history.accepted('checkpointNow'), history.answered('checkpointNow')),
  },
  {
    what: 'a step is planned while an Update is being recorded',
    rule: 'R21',
    doctor: (history) => {
      const { activityId } = history.scheduled('planStep', 2).activityTaskScheduledEventAttributes!;
      history.move(history.scheduled('planStep', 2), history.answered('pause'));
      expect(activityId).toContain('000002');
    },
  },
  {
    what: 'a step is planned without an Update that was answered before',
    rule: 'R21',
    doctor: (history) =>
      history.editInput<{ control: number }>('planStep', (input) => (input.control = 0), 3),
  },
];

test('an unchanged history has no violation, and its figures are the run’s', async () => {
  const audit = await new DoctoredHistory().audit();
  expect(audit.violations).toEqual([]);
  // Two pauses, a checkpoint and a resume; a supervised step and three others.
  expect(audit).toMatchObject({ executions: 1, updates: 4, steps: 4 });
  expect(audit.events).toBe(recordedExecutions()[0]!.events.length);
  expect(audit.largestPayloadBytes).toBeGreaterThan(500);
  expect(audit.largestPayloadBytes).toBeLessThan(10 * 1024);
});

test('a run that continued as new exactly where the earlier execution ended has no violation of its steps', async () => {
  const history = new DoctoredHistory();
  history.continueAsNewBefore(3, 2);
  const { violations } = await history.audit();
  expect(violations.filter(({ rule }) => rule !== 'ends' && rule !== 'R4')).toEqual([]);
});

test('a step with two updates and one record has no violation if its lease ended as the first update answered', async () => {
  const history = new DoctoredHistory();
  history.repeat('updatePolicy', 2, 'revoked');
  expect((await history.audit()).violations).toEqual([]);
});

describe('a changed history is found', () => {
  test.each(doctorings)('$what: $rule', async ({ rule, names = '', doctor }) => {
    const history = new DoctoredHistory();
    doctor(history);
    const { violations } = await history.audit();
    expect(violations).toContainEqual(
      expect.objectContaining({ rule, problem: expect.stringContaining(names) as string }),
    );
  });
});
