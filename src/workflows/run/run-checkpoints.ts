// The checkpoints of one run: saves its states on the node's disk, then uploads them to the store.
import { isCancellation, rootCause } from '@temporalio/workflow';
import {
  CheckpointUploads,
  type CheckpointSchedule,
  type CheckpointWatch,
  type Saving,
} from './checkpoint-uploads.js';
import type { NodePlacement } from './node-placement.js';
import { type Place, saveOn, uploadFrom } from '../run-activities.js';
import type { RunProgress } from './run-progress.js';
import type { JoinedRollouts } from './shared-rollouts.js';

export class RunCheckpoints {
  private readonly uploads: CheckpointUploads;
  /** Rollout time of the last step that had rollouts. The next rollouts hide a save that takes no longer. */
  private rolloutSeconds = 0;

  constructor(
    private readonly owned: { run: string; owner: number },
    private readonly nodes: NodePlacement,
    private readonly progress: RunProgress,
    schedule: () => CheckpointSchedule,
    uploaded: (step: number) => void,
  ) {
    const watch: CheckpointWatch = {
      status: progress.status,
      checkpoint: (step) => {
        progress.checkpoint(step);
        uploaded(step);
      },
      checkpointFailed: (step, message) => progress.checkpointFailed(step, message),
    };
    this.uploads = new CheckpointUploads(schedule, watch, (step) =>
      // The first node has just saved the state. If that node is gone, no other node has it, and the checkpoint is given up.
      nodes.onLivingNode((place) => this.upload(place, step)),
    );
  }

  /** Like `CheckpointUploads.wants`; `beside` is true if rollouts come next. */
  wants(step: number, beside: boolean): Promise<Saving | null> {
    return this.uploads.wants(step, beside ? this.rolloutSeconds : 0);
  }

  stepTook(seconds: number): void {
    this.uploads.stepTook(seconds);
  }

  /** Returns when no upload is in flight. */
  drained(): Promise<void> {
    return this.uploads.drained();
  }

  /** The rollouts from the state after `step` are done; if requested, the state was saved beside them. */
  savedBeside(step: number, { kept, seconds }: JoinedRollouts): void {
    this.rolloutSeconds = seconds;
    if (!kept) return;
    this.uploads.saved(step, kept);
  }

  /** Saves the state after `step` when there are no rollouts to save it beside. */
  async save(step: number, saving: Saving = {}): Promise<void> {
    const begun = Date.now();
    const summary = this.progress.summary(step, 'save');
    try {
      await this.nodes.onLivingNode((place) => saveOn(place, { ...this.owned, step, ...saving }, summary));
      this.uploads.saved(step, { seconds: (Date.now() - begun) / 1000 });
    } catch (error) {
      if (isCancellation(error)) throw error;
      this.uploads.saved(step, { problem: rootCause(error) ?? String(error) });
    }
  }

  /** Called while the run is paused after `step`: returns when the store has the checkpoint that a person asked for. */
  async uploadAsked(step: number): Promise<void> {
    if (!this.uploads.asked(step)) return;
    await this.uploads.drained();
    if (this.uploads.asked(step)) await this.save(step);
    this.uploads.startWhereDue(step);
    await this.uploads.drained();
  }

  /** The last state is always uploaded, by any node; if that fails, the run waits for a person. */
  async keepLast(step: number): Promise<void> {
    await this.uploads.drained();
    if (step < 1 || this.progress.status.lastCheckpoint === step) return;
    await this.nodes.onNode((place) => this.upload(place, step, { restore: true }));
    this.progress.checkpoint(step);
  }

  private upload(place: Place, step: number, last: { restore?: true } = {}): Promise<void> {
    return uploadFrom(place, { ...this.owned, step }, this.progress.summary(step, 'upload'), last);
  }
}
