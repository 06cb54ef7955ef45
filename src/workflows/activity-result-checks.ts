// Checks the fields of activity results that the workflows use. A person may complete an activity by hand (`temporal activity complete`)
// with a malformed result; a workflow that throws on it stops and cannot even answer a query.
import { ActivityFailure, ApplicationFailure, RetryState } from '@temporalio/common';
import type { NodeActivities, OrchestratorActivities, TransferActivities } from '../activities/contracts.js';
import type { DataActivities } from '../activities/data-contracts.js';
import type { Interruptions } from './interruptions.js';

type Kind = 'boolean' | 'number' | 'number or null' | 'object' | 'string';

type Activities = OrchestratorActivities & NodeActivities & TransferActivities & DataActivities;
type Members<A extends keyof Activities> = keyof Awaited<ReturnType<Activities[A]>>;

const required: { [A in keyof Activities]?: Partial<Record<Members<A>, Kind>> } = {
  openRun: { outline: 'object', owner: 'number', position: 'object', control: 'object' },
  recordControl: { n: 'number', paused: 'boolean' },
  planStep: { step: 'number', kind: 'string', plan: 'string', slots: 'number' },
  planWave: { from: 'number', to: 'number' },
  writeReport: { key: 'string' },
  commitBase: { state: 'string' },
  collectRollouts: { graded: 'number', tokens: 'number', seconds: 'number' },
  updatePolicy: { step: 'number', state: 'string', applied: 'boolean', metrics: 'object' },
  gatherDataset: { tasks: 'number', solved: 'number', has_teacher: 'boolean' },
  teachTasks: { solved: 'number', spent: 'object', exhausted: 'boolean' },
  gateTasks: { passed: 'number', failed: 'number' },
  finishDataset: { dataset: 'string', train_tasks: 'number', excluded: 'object', demonstrations: 'object' },
  evaluateState: { state: 'string', suite_name: 'string', pass_at_1: 'number or null', graded: 'number' },
};

/** Wraps the activities: each also receives the run's interruptions, and a result of the wrong shape counts as a failed activity. */
export function withCheckedAnswers<T extends object>(activities: T, id: string, run?: Interruptions): T {
  return new Proxy(activities, {
    get: (target, name) => {
      const activity = Reflect.get(target, name) as (input: unknown) => Promise<unknown>;
      const wanted = Object.entries<Kind>(required[name as keyof Activities] ?? {});
      if (wanted.length === 0) return activity;
      return async (input: object): Promise<unknown> => {
        const reported = run?.undelivered ?? [];
        const answer = await activity(reported.length > 0 ? { ...input, interruptions: reported } : input);
        const missing = wanted.filter(([member, kind]) => !has(answer, member, kind));
        if (missing.length > 0) throw notOurs(id, String(name), answer, missing[0]);
        run?.answered(reported, answer as { ended_at?: number });
        return answer;
      };
    },
  });
}

function has(answer: unknown, member: string, kind: Kind): boolean {
  if (typeof answer !== 'object' || answer === null) return false;
  const value: unknown = Reflect.get(answer, member);
  if (kind === 'number or null') return typeof value === 'number' || value === null;
  return typeof value === kind && value !== null;
}

function notOurs(id: string, name: string, answer: unknown, missing: [string, Kind] | undefined): Error {
  const [member, kind] = missing ?? [];
  const message =
    `${id} was completed by hand with ${JSON.stringify(answer)?.slice(0, 200) ?? 'nothing'}, ` +
    `which has no ${member} (${kind}); the activity’s work is not done`;
  const cause = ApplicationFailure.nonRetryable(message, 'NotItsAnswer');
  return new ActivityFailure(message, name, id, RetryState.NON_RETRYABLE_FAILURE, undefined, cause);
}
