// Checkpoints behind the steps: saved beside a step's rollouts, uploaded while the next steps run, one at a time.
// A checkpoint that fails fails no step: the next one is taken from the state that is held then (R16, R17).
import { isCancellation, log, rootCause } from '@temporalio/workflow';
import type { RunOutline } from '../activities/contracts.js';
import { localSave, maxUploadLag } from './policies.js';
import type { RunProgress } from './run-progress.js';
import { checkpointDue } from './step-schedule.js';

export interface CheckpointTransfers {
  /** Saves the state after `step` on the node that holds it. */
  save(step: number): Promise<void>;
  upload(step: number): Promise<void>;
}

export class CheckpointUploads {
  private inFlight: { step: number; done: Promise<void> } | null = null;
  private unsavedSeconds = 0;
  private saveSeconds = 0;

  constructor(
    private readonly outline: RunOutline,
    private readonly progress: RunProgress,
    private readonly transfers: CheckpointTransfers,
  ) {}

  /** What a restart would have to compute again grows by this. */
  stepTook(seconds: number): void {
    this.unsavedSeconds += seconds;
  }

  /**
   * Saves the state after `step` where a checkpoint is due, then starts its upload without awaiting it. Between checkpoints
   * it saves to the node's disk alone where a restart would cost more than a save does.
   */
  async beside(step: number): Promise<void> {
    if (step < 1) return;
    const { lastCheckpoint } = this.progress.status;
    const due = checkpointDue(this.outline, this.inFlight?.step ?? lastCheckpoint, step);
    if (this.inFlight) {
      // The node keeps few states on its disk: a save now could push out the one that is being uploaded.
      if (!due || step - this.inFlight.step < maxUploadLag * this.outline.ckpt_interval) return;
      await this.inFlight.done;
    }
    if (!due && !this.worthSaving()) return;
    if ((await this.save(step)) && due) this.start(step);
  }

  private worthSaving(): boolean {
    return this.unsavedSeconds >= Math.max(localSave.afterSeconds, localSave.timesItsCost * this.saveSeconds);
  }

  private async save(step: number): Promise<boolean> {
    const begun = Date.now();
    this.unsavedSeconds = 0;
    try {
      await this.transfers.save(step);
      this.saveSeconds = (Date.now() - begun) / 1000;
      return true;
    } catch (error) {
      if (isCancellation(error)) throw error;
      this.failed(step, error);
      return false;
    }
  }

  /** Returns when nothing is in flight. */
  async drained(): Promise<void> {
    await this.inFlight?.done;
  }

  private start(step: number): void {
    const done = this.transfers
      .upload(step)
      .then(() => this.progress.checkpoint(step))
      .catch((error: unknown) => {
        // A cancelled run hears of it where it waits; a background promise must not reject unheard.
        if (!isCancellation(error)) this.failed(step, error);
      })
      .finally(() => {
        this.inFlight = null;
      });
    this.inFlight = { step, done };
  }

  private failed(step: number, error: unknown): void {
    const message = rootCause(error) ?? String(error);
    log.warn('A checkpoint failed; the next one is taken anew', { step, message });
    this.progress.checkpointFailed(step, message);
  }
}
