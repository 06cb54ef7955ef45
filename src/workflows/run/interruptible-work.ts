// A pause `now` cuts off the sampling of a step. Episodes in flight leave no record, and finished ones stay (R8); after `resume` the same
// plan is completed (R9).
import { ActivityFailure, CancellationScope, CancelledFailure, isCancellation } from '@temporalio/workflow';
import type { ControlDesk } from './control-desk.js';
import type { NodePlacement } from './node-placement.js';
import type { Place } from '../run-activities.js';

/** The run ends in the middle of a step in which it was paused. The finished episodes stay for a later execution. */
export class StepInterrupted extends Error {}

export class InterruptibleWork {
  private readonly cuts = new Set<() => void>();
  private resting: Promise<void> | null = null;

  /** `rest` returns when the run continues, or has to end here. */
  constructor(
    private readonly desk: ControlDesk,
    private readonly nodes: NodePlacement,
    private readonly rest: () => Promise<void>,
  ) {
    desk.onPauseNow(() => {
      for (const cut of this.cuts) cut();
    });
  }

  /** Like `NodePlacement.ready`, but first waits until no pause holds the step. Throws `StepInterrupted`. */
  async ready(): Promise<void> {
    if (this.desk.control.pausedNow) await this.restTogether();
    await this.nodes.ready();
  }

  /** Like `NodePlacement.onNode`, but repeats `work` after each pause that cuts it off. Throws `StepInterrupted`. */
  async onNode<T>(
    work: (place: Place) => Promise<T>,
    resumed?: (failure: string) => void,
    preferred?: string,
  ): Promise<T> {
    const outer = CancellationScope.current();
    for (;;) {
      if (this.desk.control.pausedNow) await this.restTogether();
      let isCut = false;
      // This runs inside the lease's scope, so the work ends when the lease ends.
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
          // The server does not retry cancelled work, so a failure of its worker arrives here unchanged.
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

  /** Parts of a step that run side by side share one rest. */
  private async restTogether(): Promise<void> {
    this.resting ??= this.rest().finally(() => {
      this.resting = null;
    });
    await this.resting;
    if (this.desk.control.pausedNow) throw new StepInterrupted();
  }
}
