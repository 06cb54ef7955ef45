// Checkpoints behind the steps: saved beside a step's rollouts, uploaded while the next steps run, one at a time.
// A checkpoint that fails fails no step: the next one is taken from the state that is held then (R16, R17).
import { isCancellation, log, rootCause } from '@temporalio/workflow';
import type { RunOutline } from '../activities/contracts.js';
import { maxUploadLag } from './policies.js';
import type { RunProgress } from './run-progress.js';
import { checkpointDue } from './step-schedule.js';

export interface CheckpointTransfers {
  /** Saves the state after `step` on the node that holds it. */
  save(step: number): Promise<void>;
  upload(step: number): Promise<void>;
}

export class CheckpointUploads {
  private inFlight: { step: number; done: Promise<void> } | null = null;

  constructor(
    private readonly outline: RunOutline,
    private readonly progress: RunProgress,
    private readonly transfers: CheckpointTransfers,
  ) {}

  /** Saves the state after `step` where a checkpoint is due, then starts its upload without awaiting it. */
  async beside(step: number): Promise<void> {
    const { lastCheckpoint } = this.progress.status;
    if (step < 1 || !checkpointDue(this.outline, this.inFlight?.step ?? lastCheckpoint, step)) return;
    if (this.inFlight) {
      if (step - this.inFlight.step < maxUploadLag * this.outline.ckpt_interval) return;
      await this.inFlight.done;
    }
    try {
      await this.transfers.save(step);
    } catch (error) {
      if (isCancellation(error)) throw error;
      this.failed(step, error);
      return;
    }
    this.start(step);
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
