// Ids of spans that several processes share without exchanging them: each derives them from Temporal's name of the thing. So a trace
// survives its workers, and no header goes through workflows.
import { createHash, randomBytes } from 'node:crypto';

/** Lower-case hex: 32 and 16 digits. */
export interface SpanPlace {
  traceId: string;
  spanId: string;
}

/** The workflow execution that makes the step, by its run id. It is one per step: a run continues as new only between two steps. */
export interface StepName {
  workflowRunId: string;
  step: number;
}

/** Root of a step's trace. */
export function stepPlace({ workflowRunId, step }: StepName): SpanPlace {
  const name = `longhaul step ${workflowRunId}/${step}`;
  return { traceId: digits(name, 32), spanId: digits(`${name} root`, 16) };
}

export interface AttemptName {
  workflowRunId: string;
  activityId: string;
  /** Scheduled time: an activity's id may be used again after it has ended. */
  scheduledAt: number;
  attempt: number;
}

/** `parent`: null for an activity that belongs to no step, which has a trace of its own. */
export function attemptPlace(name: AttemptName, step: number | null): SpanPlace & { parent: string | null } {
  const { workflowRunId, activityId, scheduledAt, attempt } = name;
  const text = `longhaul attempt ${workflowRunId}/${activityId}/${scheduledAt}/${attempt}`;
  const spanId = digits(`${text} span`, 16);
  if (step === null) return { traceId: digits(text, 32), spanId, parent: null };
  const root = stepPlace({ workflowRunId, step });
  return { traceId: root.traceId, spanId, parent: root.spanId };
}

/** Id of a span that only one process knows. */
export function freshSpanId(): string {
  return randomBytes(8).toString('hex');
}

/** Null for an activity that belongs to no step of a run: a sweep's activities name steps of other runs, and no root of theirs is sent. */
export function stepOfActivity({
  workflowId,
  activityId,
}: {
  workflowId: string;
  activityId: string;
}): number | null {
  const [, step] = /^step-(\d+)\//.exec(activityId) ?? [];
  return step === undefined || !workflowId.startsWith('train/') ? null : Number(step);
}

function digits(text: string, count: number): string {
  return createHash('sha256').update(text).digest('hex').slice(0, count);
}
