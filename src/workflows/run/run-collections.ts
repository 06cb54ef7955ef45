// Garbage collections beside the steps, one at a time (R23): no step waits for a collection, and a failed collection fails no step.
import { CancellationScope, condition, isCancellation, log, rootCause } from '@temporalio/workflow';
import { collectionPolicy, lastCollectionPolicy } from '../policies.js';
import { orchestrator, stepId } from '../run-activities.js';
import type { RunProgress } from './run-progress.js';

/** How long the end of a run waits for a collection in flight before it skips the last collection. */
const patience = '2 minutes';

export class RunCollections {
  private inFlight: { scope: CancellationScope; ended: Promise<void> } | null = null;

  constructor(
    private readonly owned: { run: string; owner: number },
    private readonly progress: RunProgress,
  ) {}

  /** Starts a collection, because a new checkpoint is in the store and older ones may be deleted. */
  startBeside(step: number): void {
    if (this.inFlight) return;
    const scope = new CancellationScope();
    const ended = scope
      .run(() => this.collect(step, 'gc', collectionPolicy))
      .finally(() => {
        this.inFlight = null;
      });
    this.inFlight = { scope, ended };
  }

  /** Cancels the collection in flight, so that nothing has to wait for it: a collection may be killed at any moment. */
  async givenUp(): Promise<void> {
    this.inFlight?.scope.cancel();
    await this.inFlight?.ended;
  }

  /** Runs the last collection at the end of the run. Never rejects. */
  async last(step: number): Promise<void> {
    try {
      if (this.inFlight && !(await condition(() => this.inFlight === null, patience))) {
        await this.givenUp();
        return;
      }
    } catch (error) {
      if (isCancellation(error)) return;
      throw error;
    }
    await this.collect(step, 'gc-last', lastCollectionPolicy);
  }

  private async collect(step: number, name: string, policy: typeof collectionPolicy): Promise<void> {
    try {
      await orchestrator(
        stepId(step, name),
        this.progress.summary(step, 'collection'),
        policy,
      ).collectGarbage({ ...this.owned, step });
      this.progress.collected();
    } catch (error) {
      if (isCancellation(error)) return;
      const message = rootCause(error) ?? String(error);
      this.progress.collectionFailed(step, message);
      log.warn('A collection failed: its data stays until the next collection', { step, message });
    }
  }
}
