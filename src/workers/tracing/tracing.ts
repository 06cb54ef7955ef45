// Makes the spans of one worker process: activity attempts, their parts and the engine's calls; in an orchestrator also steps. Only a
// process that traces loads this file. Attributes are names, ids and figures, never text from a policy, a tool or a person.
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Context } from '@temporalio/activity';
import type { ActivityInterceptorsFactory, InjectedSinks } from '@temporalio/worker';
import type { OpenSpan, SpanAttributes, Tracer } from '../../base/spans.js';
import type { TraceSinks } from '../../workflows/step-tracing.js';
import { CallTally } from './call-tally.js';
import { attemptPlace, freshSpanId, type SpanPlace, stepOfActivity, stepPlace } from './span-ids.js';
import type { SpanSender } from './span-sender.js';

/** Figures in an activity's result that explain how long the activity took. */
const answeredFigures = ['graded', 'unknown', 'tokens'] as const;

/** A span that has not ended, and the tallies of its calls. */
interface Current extends SpanPlace {
  tallies: Map<string, CallTally>;
}

export class Tracing implements Tracer {
  private readonly current = new AsyncLocalStorage<Current>();

  constructor(private readonly sender: SpanSender) {}

  /** Starts a span for a part of the current activity. Outside an activity nothing is traced. */
  begin(name: string): OpenSpan {
    const parent = this.current.getStore();
    if (!parent) return { during: (work) => work(), end: () => undefined };
    const place = { traceId: parent.traceId, spanId: freshSpanId() };
    return this.open(name, place, parent.spanId, {});
  }

  /** Counts one of many calls of the same kind. All such calls made during one span become a single child span. */
  tallied<T>(
    name: string,
    call: () => Promise<T>,
    figures: (answer: T) => Record<string, number> = () => ({}),
  ): Promise<T> {
    const parent = this.current.getStore();
    if (!parent) return call();
    const tally = parent.tallies.get(name) ?? new CallTally(Date.now());
    parent.tallies.set(name, tally);
    return tally.during(call, figures);
  }

  readonly activities: ActivityInterceptorsFactory = (context) => ({
    inbound: {
      execute: async (input, next) => {
        const open = this.attempt(context, input.args[0]);
        try {
          const answer = await open.during(() => next(input));
          open.end(figuresOf(answer));
          return answer;
        } catch (error) {
          open.end({ 'error.type': typeOf(error) });
          throw error;
        }
      },
    },
  });

  readonly sinks: InjectedSinks<TraceSinks> = {
    trace: {
      step: {
        fn: ({ workflowId, runId }, { step, startedAt, failed }) =>
          this.sender.send({
            ...stepPlace({ workflowRunId: runId, step }),
            ...{ parent: null, name: 'step', startedAt, endedAt: Math.max(startedAt, Date.now()), failed },
            attributes: workflowAttributes(workflowId, runId, step),
          }),
      },
    },
  };

  close(): Promise<void> {
    return this.sender.close();
  }

  private attempt({ info }: Context, input: unknown): OpenSpan {
    const { workflowExecution, activityId, activityType, attempt, taskQueue } = info;
    const { workflowId = 'standalone', runId = 'standalone' } = workflowExecution ?? {};
    const step = stepOfActivity({ workflowId, activityId });
    const name = {
      workflowRunId: runId,
      activityId,
      scheduledAt: info.scheduledTimestampMs,
      attempt,
    };
    const { parent, ...place } = attemptPlace(name, step);
    const run = (input as { run?: unknown } | undefined)?.run;
    return this.open(activityType, place, parent, {
      ...workflowAttributes(workflowId, runId, step),
      ...(typeof run === 'string' ? { 'longhaul.run': run } : {}),
      'temporal.activity_id': activityId,
      'temporal.attempt': attempt,
      'temporal.task_queue': taskQueue,
      'longhaul.queued_ms': Math.max(0, Date.now() - info.currentAttemptScheduledTimestampMs),
    });
  }

  private open(name: string, place: SpanPlace, parent: string | null, attributes: SpanAttributes): OpenSpan {
    const current: Current = { ...place, tallies: new Map() };
    const startedAt = Date.now();
    let failed: { type: string } | null = null;
    let ended = false;
    const end = (more: SpanAttributes = {}): void => {
      if (ended) return;
      ended = true;
      this.sendTallies(current);
      const outcome = failed ? { 'error.type': failed.type, ...more } : more;
      this.sender.send({
        ...{ ...place, parent, name, startedAt, failed: failed !== null },
        // Use the wall clock, as other processes do; it may have been set back since the start.
        endedAt: Math.max(startedAt, Date.now()),
        attributes: { ...attributes, ...outcome },
      });
    };
    const during = async <T>(work: () => Promise<T>): Promise<T> => {
      try {
        return await this.current.run(current, work);
      } catch (error) {
        failed = { type: typeOf(error) };
        throw error;
      }
    };
    return { during, end };
  }

  private sendTallies({ traceId, spanId, tallies }: Current): void {
    for (const [name, tally] of tallies) {
      const { startedAt, endedAt } = tally;
      this.sender.send({
        ...{ traceId, spanId: freshSpanId(), parent: spanId, name, startedAt, endedAt, failed: false },
        attributes: tally.attributes(),
      });
    }
  }
}

function workflowAttributes(workflowId: string, runId: string, step: number | null): SpanAttributes {
  const [, run] = /^train\/(.+)$/.exec(workflowId) ?? [];
  return {
    ...(run === undefined ? {} : { 'longhaul.run': run }),
    ...(step === null ? {} : { 'longhaul.step': step }),
    'temporal.workflow_id': workflowId,
    'temporal.run_id': runId,
  };
}

function figuresOf(answer: unknown): SpanAttributes {
  const answered = (answer ?? {}) as Record<string, unknown>;
  return Object.fromEntries(
    answeredFigures.flatMap((name) => {
      const value = answered[name];
      return typeof value === 'number' ? [[`longhaul.${name}`, value]] : [];
    }),
  );
}

/** The type of an error, not its message, which may quote a tool or a policy. */
function typeOf(error: unknown): string {
  const { type, code, name } = (error ?? {}) as { type?: unknown; code?: unknown; name?: unknown };
  return [type, code, name].find((one): one is string => typeof one === 'string') ?? 'unknown';
}
