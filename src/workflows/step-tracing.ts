// Reports when a run's steps began and that they ended, for a worker that traces. Only such a worker bundles it, and it sends nothing to
// the server: histories are the same with it and without, and so is the order in which a workflow's promises settle.
import { proxySinks, type Sinks, type WorkflowInterceptorsFactory } from '@temporalio/workflow';

export interface EndedStep {
  step: number;
  /** Workflow time, milliseconds since 1970. The sink takes the end from its own clock, because workflow time stands still after a lost workflow task. */
  startedAt: number;
  failed: boolean;
}

export interface TraceSinks extends Sinks {
  trace: { step(ended: EndedStep): void };
}

const { trace } = proxySinks<TraceSinks>();

/** What a step begins and ends with; step 0 is one activity. */
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
