// Ids of spans that several processes share. Each process computes the same id from names in Temporal, so no header must pass through
// workflows, and a trace survives the death of a worker.
import { createHash, randomBytes } from 'node:crypto';

/** Ids of a trace and a span in lower-case hex: 32 and 16 digits. */
export interface SpanPlace {
  traceId: string;
  spanId: string;
}

/** A step, by the run id of its workflow execution. A run continues as new only between steps, so a step has one execution. */
interface StepName {
  workflowRunId: string;
  step: number;
}

/** Ids of the root span of a step's trace. */
export function stepPlace({ workflowRunId, step }: StepName): SpanPlace {
  const name = `longhaul step ${workflowRunId}/${step}`;
  return { traceId: digits(name, 32), spanId: digits(`${name} root`, 16) };
}

interface AttemptName {
  workflowRunId: string;
  activityId: string;
  /** When the activity was scheduled; its id alone is not unique, as it may be used again after the activity's end. */
  scheduledAt: number;
  attempt: number;
}

/** Ids of an attempt's span. `parent`: null for an activity that belongs to no step; it has its own trace. */
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

/** The step of an activity; null if it belongs to no step. A sweep's activity names another run's step, but belongs to none. */
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
