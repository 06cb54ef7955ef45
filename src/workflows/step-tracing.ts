// Reports the beginning and the end of a run's steps to a tracing worker. Only a worker that traces bundles this code. It sends nothing to
// the server, so the histories and the order in which promises settle are the same with and without it.
import { proxySinks, type Sinks, type WorkflowInterceptorsFactory } from '@temporalio/workflow';

export interface EndedStep {
  step: number;
  /** Workflow time, ms since 1970. The sink takes the end from its own clock: workflow time stops after a lost workflow task. */
  startedAt: number;
  failed: boolean;
}

export interface TraceSinks extends Sinks {
  trace: { step(ended: EndedStep): void };
}

const { trace } = proxySinks<TraceSinks>();

/** The activities that begin and end a step; step 0 has only one activity. */
const first: readonly string[] = ['plan', 'base'];
const last: readonly string[] = ['update', 'base'];

export const interceptors: WorkflowInterceptorsFactory = () => {
  const begun = new Map<number, number>();
  return {
    outbound: [
      {
        scheduleActivity(input, next) {
          const [, number, name = ''] = /^step-(\d+)\/([a-z]+)/.exec(input.options.activityId ?? '') ?? [];
          const step = Number(number);
          if (first.includes(name) && !begun.has(step)) begun.set(step, Date.now());
          const result = next(input);
          if (!last.includes(name)) return result;
          const ended = (failed: boolean): void => {
            trace.step({ step, startedAt: begun.get(step) ?? Date.now(), failed });
            if (!failed) begun.delete(step);
          };
          result.then(
            () => ended(false),
            () => ended(true),
          );
          return result;
        },
      },
    ],
  };
};
