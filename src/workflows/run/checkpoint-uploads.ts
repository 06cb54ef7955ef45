// Uploads checkpoints while later steps run: a state is saved beside a step's rollouts and uploaded beside the next steps, one at a time. A
// failed checkpoint fails no step: the next one saves the state held then (R16, R17).
import { isCancellation, log, rootCause } from '@temporalio/workflow';
import type { KeptState, RunStatus } from '../../activities/contracts.js';
import { localSave, maxUploadLag } from '../policies.js';
import { checkpointDue } from './step-schedule.js';

/** A run's position, and callbacks for what became of its checkpoints. */
export interface CheckpointWatch {
  readonly status: Readonly<Pick<RunStatus, 'step' | 'lastCheckpoint'>>;
  checkpoint(step: number): void;
  checkpointFailed(step: number, message: string): void;
}

/** When checkpoints are due, as set now. */
export interface CheckpointSchedule {
  /** Steps between two checkpoints. */
  interval: number;
  /** The step from which a person asked for a checkpoint; null if nobody did. */
  asked: number | null;
}

/** A save on the node's disk. */
export interface Saving {
  /** The step whose state is being uploaded: the node keeps only few states, and must keep this state. */
  spare?: number;
}

export class CheckpointUploads {
  private inFlight: { step: number; done: Promise<void> } | null = null;
  /** True if the last planned save starts no upload: another upload is in flight, or ended only during the last step. */
  private quiet = false;
  private unsavedSeconds = 0;
  private saveSeconds = 0;
  /** True if an upload of an earlier step has ended since the last step was planned. */
  private overran = false;

  constructor(
    private readonly schedule: () => CheckpointSchedule,
    private readonly progress: CheckpointWatch,
    private readonly upload: (step: number) => Promise<void>,
  ) {}

  /** Adds a step's time to what a restart would have to compute again. */
  stepTook(seconds: number): void {
    this.unsavedSeconds += seconds;
  }

  /**
   * How to save the state after `step` beside the next step. Null if no checkpoint is due and the steps since the last save are not worth
   * saving. Waits for an upload that lags too far behind; the checkpoint that is due then saves a later state. `hiddenSeconds`: how long a
   * save may take without delaying anything.
   */
  async wants(step: number, hiddenSeconds: number): Promise<Saving | null> {
    // The end of one upload and a whole second upload would add too many events to the history of one step.
    this.quiet = this.overran || this.inFlight !== null;
    this.overran = false;
    if (step < 1) return null;
    const lag = this.inFlight ? step - this.inFlight.step : 0;
    if (this.due(step) && lag >= maxUploadLag * this.schedule().interval) await this.inFlight?.done;
    const wanted = (this.due(step) && !this.quiet) || this.worthSaving(hiddenSeconds);
    if (!wanted) return null;
    return this.inFlight ? { spare: this.inFlight.step } : {};
  }

  /** The save of the state after `step` has ended, with the saved state or a problem. Starts the upload if a checkpoint is due. */
  saved(step: number, kept: KeptState): void {
    this.unsavedSeconds = 0;
    if ('problem' in kept) return this.failed(step, kept.problem);
    this.saveSeconds = kept.seconds;
    if (!this.quiet) this.startWhereDue(step);
  }

  /** Starts the upload of a state that is on the node's disk, if one is due. */
  startWhereDue(step: number): void {
    if (!this.inFlight && this.due(step)) this.start(step);
  }

  private due(step: number): boolean {
    return this.asked(step) || checkpointDue(this.schedule().interval, this.newest, step);
  }

  /** True while a person waits for a checkpoint of this step. */
  asked(step: number): boolean {
    const { asked } = this.schedule();
    return asked !== null && step >= asked && asked > (this.newest ?? 0);
  }

  private get newest(): number | null {
    return this.inFlight?.step ?? this.progress.status.lastCheckpoint;
  }

  private worthSaving(hiddenSeconds: number): boolean {
    const cost = Math.max(0, this.saveSeconds - hiddenSeconds);
    return this.unsavedSeconds >= Math.max(localSave.afterSeconds, localSave.timesItsCost * cost);
  }

  /** Returns when no upload is in flight. */
  async drained(): Promise<void> {
    await this.inFlight?.done;
  }

  private start(step: number): void {
    const begun = this.progress.status.step;
    const done = this.upload(step)
      .then(() => this.progress.checkpoint(step))
      .catch((error: unknown) => {
        // Code that waits for the upload sees the cancellation; this background promise must not be left with an unhandled rejection.
        if (!isCancellation(error)) this.failed(step, rootCause(error) ?? String(error));
      })
      .finally(() => {
        this.inFlight = null;
        this.overran = this.progress.status.step !== begun;
      });
    this.inFlight = { step, done };
  }

  private failed(step: number, message: string): void {
    log.warn('A checkpoint failed; the next checkpoint follows as planned', { step, message });
    this.progress.checkpointFailed(step, message);
  }
}
