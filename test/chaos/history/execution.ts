// Reads a run's executions from the Temporal server, in the JSON form of its protocol, and the parts of them that a check needs.
import type { Client } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';

export interface Payload {
  metadata?: Record<string, string>;
  /** In base64. */
  data?: string;
}

interface Payloads {
  payloads?: Payload[];
}

interface EndOfActivity {
  scheduledEventId: string;
}

/** The fields of an event that the audit reads. */
export interface HistoryEvent {
  eventId: string;
  eventType: string;
  workflowExecutionStartedEventAttributes?: { firstExecutionRunId: string };
  workflowExecutionCompletedEventAttributes?: { result?: Payloads };
  workflowExecutionContinuedAsNewEventAttributes?: { newExecutionRunId: string };
  activityTaskScheduledEventAttributes?: {
    activityId: string;
    activityType: { name: string };
    input?: Payloads;
    workflowTaskCompletedEventId: string;
  };
  activityTaskCompletedEventAttributes?: EndOfActivity & { result?: Payloads };
  activityTaskFailedEventAttributes?: EndOfActivity;
  activityTaskTimedOutEventAttributes?: EndOfActivity;
  activityTaskCanceledEventAttributes?: EndOfActivity;
  activityTaskCancelRequestedEventAttributes?: EndOfActivity;
  workflowExecutionSignaledEventAttributes?: { signalName: string };
  workflowExecutionUpdateAcceptedEventAttributes?: {
    acceptedRequest: { meta: { updateId: string }; input: { name: string; args?: Payloads } };
  };
  workflowExecutionUpdateCompletedEventAttributes?: {
    meta: { updateId: string };
    outcome?: { success?: Payloads; failure?: { message?: string } };
  };
}

export interface Execution {
  workflowId: string;
  runId: string;
  events: HistoryEvent[];
}

/** An activity with all its attempts: the history contains only its end. */
export interface Activity {
  /** Position of the event that scheduled it. */
  at: number;
  eventId: string;
  id: string;
  type: string;
  input: unknown;
  /** The workflow requested its cancellation. If the lease had ended, the workflow does not wait for the activity's end. */
  calledOff: boolean;
  end: { at: number; eventId: string; completed: boolean; result: unknown } | null;
}

export interface AcceptedUpdate {
  at: number;
  eventId: string;
  id: string;
  name: string;
  /** `answer`: null if the Update failed. */
  end: { at: number; answer: unknown } | null;
}

/** How an execution ended, from the type of its last event; `RUNNING` if it has not ended. */
export type ExecutionEnd = 'COMPLETED' | 'CONTINUED_AS_NEW' | 'RUNNING' | 'OTHER';

/** Every execution of the run that this server knows, each chain of executions in order. */
export async function fetchExecutions(client: Client, run: string): Promise<Execution[]> {
  const executions = new Map<string, Execution>();
  const fetch = async (workflowId: string, runId: string): Promise<void> => {
    if (executions.has(runId)) return;
    const history = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    const { events } = JSON.parse(historyToJSON(history)) as { events: HistoryEvent[] };
    executions.set(runId, { workflowId, runId, events });
    // The list of executions may lack the newest ones, so follow the chain.
    const next = events.at(-1)?.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId;
    if (next) await fetch(workflowId, next);
  };
  const known: { workflowId: string; runId: string; startTime: Date }[] = [];
  for await (const { workflowId, runId, startTime, type } of client.workflow.list()) {
    if (type === 'trainingRun' && workflowId.endsWith(`/${run}`))
      known.push({ workflowId, runId, startTime });
  }
  known.sort((a, b) => a.startTime.getTime() - b.startTime.getTime());
  for (const { workflowId, runId } of known) await fetch(workflowId, runId);
  return [...executions.values()];
}

/** Chains of executions that continued as new, by the run id of the first one. */
export function chainsOf(executions: readonly Execution[]): Map<string, Execution[]> {
  const chains = new Map<string, Execution[]>();
  for (const execution of executions) {
    const first = execution.events[0]?.workflowExecutionStartedEventAttributes?.firstExecutionRunId;
    const id = first ?? execution.runId;
    chains.set(id, [...(chains.get(id) ?? []), execution]);
  }
  return chains;
}

export function endOf({ events }: Execution): ExecutionEnd {
  const last = events.at(-1)?.eventType.replace('EVENT_TYPE_WORKFLOW_EXECUTION_', '');
  if (last === 'COMPLETED' || last === 'CONTINUED_AS_NEW') return last;
  return last === 'FAILED' || last === 'CANCELED' || last === 'TERMINATED' || last === 'TIMED_OUT'
    ? 'OTHER'
    : 'RUNNING';
}

/** Sorted by the time at which they were scheduled. */
export function activitiesOf({ events }: Execution): Activity[] {
  const byEvent = new Map<string, Activity>();
  for (const [at, event] of events.entries()) {
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled) {
      const { activityId, activityType, input } = scheduled;
      byEvent.set(event.eventId, {
        ...{ at, eventId: event.eventId, id: activityId, type: activityType.name },
        ...{ input: firstOf(input), calledOff: false, end: null },
      });
    }
    const called = event.activityTaskCancelRequestedEventAttributes;
    const calledOff = called && byEvent.get(called.scheduledEventId);
    if (calledOff) calledOff.calledOff = true;
    const completed = event.activityTaskCompletedEventAttributes;
    const ended =
      completed ??
      event.activityTaskFailedEventAttributes ??
      event.activityTaskTimedOutEventAttributes ??
      event.activityTaskCanceledEventAttributes;
    const activity = ended && byEvent.get(ended.scheduledEventId);
    if (!activity) continue;
    const result = firstOf(completed?.result);
    activity.end = { at, eventId: event.eventId, completed: completed !== undefined, result };
  }
  return [...byEvent.values()];
}

/** Positions of the events at which a signal of this name arrived. */
export function signalsOf({ events }: Execution, name: string): number[] {
  return events.flatMap(({ workflowExecutionSignaledEventAttributes: signal }, at) =>
    signal?.signalName === name ? [at] : [],
  );
}

export function updatesOf({ events }: Execution): AcceptedUpdate[] {
  const byId = new Map<string, AcceptedUpdate>();
  for (const [at, event] of events.entries()) {
    const accepted = event.workflowExecutionUpdateAcceptedEventAttributes?.acceptedRequest;
    if (accepted) {
      const id = accepted.meta.updateId;
      byId.set(id, { at, eventId: event.eventId, id, name: accepted.input.name, end: null });
    }
    const completed = event.workflowExecutionUpdateCompletedEventAttributes;
    const update = completed && byId.get(completed.meta.updateId);
    if (update) update.end = { at, answer: firstOf(completed.outcome?.success) ?? null };
  }
  return [...byId.values()];
}

/** The result that the workflow returned. */
export function resultOf({ events }: Execution): unknown {
  return firstOf(events.at(-1)?.workflowExecutionCompletedEventAttributes?.result);
}

/** Every payload anywhere in an event: inputs, results, details, headers, memos, summaries. */
export function payloadsOf(value: unknown): Buffer[] {
  if (typeof value !== 'object' || value === null) return [];
  const { metadata, data } = value as Payload;
  if (typeof data === 'string' && metadata !== undefined) return [Buffer.from(data, 'base64')];
  return Object.values(value).flatMap(payloadsOf);
}

/** Every text anywhere in an event, and every payload as text. */
export function textsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (typeof value !== 'object' || value === null) return [];
  const payloads = 'data' in value ? payloadsOf(value).map((bytes) => bytes.toString('utf8')) : [];
  return [...payloads, ...Object.values(value).flatMap(textsOf)];
}

function firstOf(payloads: Payloads | undefined): unknown {
  const data = payloads?.payloads?.[0]?.data;
  return data === undefined ? undefined : JSON.parse(Buffer.from(data, 'base64').toString('utf8'));
}
