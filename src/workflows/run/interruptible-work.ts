// A pause `now` cuts off what a step is sampling: episodes in flight leave no record, finished ones stay (R8), and after
// `resume` the same plan is filled (R9).
import { ActivityFailure, CancellationScope, CancelledFailure, isCancellation } from '@temporalio/workflow';
import type { ControlDesk } from './control-desk.js';
import type { NodePlacement } from './node-placement.js';
import type { Place } from '../run-activities.js';

/** The run ends in the middle of a step, where it was paused: the episodes sampled so far stay for the execution that goes on. */
export class StepInterrupted extends Error {}

export class InterruptibleWork {
  private readonly cuts = new Set<() => void>();
  private resting: Promise<void> | null = null;

  /** `rest` returns when the run goes on, or is to end at this point. */
  constructor(
    private readonly desk: ControlDesk,
    private readonly nodes: NodePlacement,
    private readonly rest: () => Promise<void>,
  ) {
    desk.onPauseNow(() => {
      for (const cut of this.cuts) cut();
    });
  }

  /** As `NodePlacement.ready`, once no pause holds the step. Throws `StepInterrupted`. */
  async ready(): Promise<void> {
    if (this.desk.control.pausedNow) await this.restTogether();
    await this.nodes.ready();
  }

  /** As `NodePlacement.onNode`, again and again until no pause has cut `work` off. Throws `StepInterrupted`. */
  async onNode<T>(
    work: (place: Place) => Promise<T>,
    resumed?: (failure: string) => void,
    preferred?: string,
  ): Promise<T> {
    const outer = CancellationScope.current();
    for (;;) {
      if (this.desk.control.pausedNow) await this.restTogether();
      let isCut = false;
      // Inside the lease's scope: when the lease ends, this work ends.
      const uncut = async (place: Place): Promise<T> => {
        const scope = new CancellationScope();
        const cut = (): void => {
          isCut = true;
          scope.cancel();
        };
        this.cuts.add(cut);
        if (this.desk.control.pausedNow) cut();
        try {
          return await scope.run(() => work(place));
        } catch (error) {
          // The server does not retry cancelled work, so a failure of its worker comes through as it is.
          throw isCut && error instanceof ActivityFailure
            ? new CancelledFailure('cut off by a pause')
            : error;
        } finally {
          this.cuts.delete(cut);
        }
      };
      try {
        return await this.nodes.onNode(uncut, resumed, preferred);
      } catch (error) {
        if (!isCancellation(error) || !isCut || outer.consideredCancelled) throw error;
      }
    }
  }

  /** Parts of a step that run side by side rest as one. */
  private async restTogether(): Promise<void> {
    this.resting ??= this.rest().finally(() => {
      this.resting = null;
    });
    await this.resting;
    if (this.desk.control.pausedNow) throw new StepInterrupted();
  }
}
