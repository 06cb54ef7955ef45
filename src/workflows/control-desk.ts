// Updates become control records (R21): an Update is answered when its record is stored, and no step is planned meanwhile.
// Validators are synchronous and pure: an asynchronous one that rejects would fail the workflow task, not the Update.
import {
  ApplicationFailure,
  condition,
  currentUpdateInfo,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { ControlState } from '../activities/contracts.js';
import type { ControlChange } from '../spec/control-records.js';
import { hyperparameterNames, problemWith } from './hyperparameters.js';
import {
  checkpointNowUpdate,
  pauseNowUpdate,
  pauseUpdate,
  resumeUpdate,
  setHyperparametersUpdate,
  type StopAfter,
  stopAfterUpdate,
} from './messages.js';

export type RecordControl = (updateId: string, change: ControlChange) => Promise<ControlState>;

export const noControl: ControlState = { n: 0, paused: false, stopAfter: null, lr: null, temperature: null };

export class ControlDesk {
  private folded: ControlState = noControl;
  /** A stop that this workflow was started to go past; null once somebody has asked for a stop again, whatever its step. */
  passedStop: number | null = null;
  /** Rises with each `resume`, so that a blocked run notices even where nothing was paused. */
  resumes = 0;
  private writing = 0;
  private record: RecordControl | null = null;
  private nextBoundary = (): number => 0;
  private cutOff = (): void => undefined;

  /** Registers the handlers; call before the first await of the workflow. `spec`: as the workflow was given it. */
  constructor(
    spec: unknown,
    private readonly changed: (control: ControlState) => void,
    private readonly isBlocked: () => boolean,
  ) {
    setHandler(pauseUpdate, () => this.pause(false), {
      description: 'Hold the run at the next step boundary',
    });
    setHandler(pauseNowUpdate, () => this.pause(true), {
      description: 'Cut off the episodes in flight, and hold the run in the middle of its step',
    });
    setHandler(resumeUpdate, () => this.resume(), {
      description: 'Go on after a pause, or try again after the cause of a block was mended',
    });
    setHandler(
      setHyperparametersUpdate,
      (values) => this.write('setHyperparameters', () => ({ kind: 'setHyperparameters', ...values })),
      {
        validator: (values) => {
          const problem = problemWith(values, spec);
          if (problem !== null) throw refused(problem);
        },
        description: `Set from the next plan on, for example {"lr": 0.0001}: ${hyperparameterNames.join(', ')}`,
      },
    );
    setHandler(
      checkpointNowUpdate,
      () => this.write('checkpointNow', () => ({ kind: 'checkpointNow', step: this.nextBoundary() })),
      { description: 'Upload the state of the next step boundary' },
    );
    setHandler(stopAfterUpdate, ({ step }) => this.write('stopAfter', () => ({ kind: 'stopAfter', step })), {
      validator: checkStopAfter,
      description: 'End the run after a step: {"step": 120}; a step in the past ends it at the next boundary',
    });
  }

  /** The folded control, without a stop that this workflow has been started to go past. */
  get control(): ControlState {
    const stopAfter = this.folded.stopAfter === this.passedStop ? null : this.folded.stopAfter;
    return { ...this.folded, stopAfter };
  }

  /** Changes that came before the run was opened wait for this. */
  open(
    control: ControlState,
    passedStop: number | null,
    record: RecordControl,
    nextBoundary: () => number,
  ): void {
    this.record = record;
    this.nextBoundary = nextBoundary;
    this.passedStop = passedStop;
    this.adopt(control);
  }

  /** From now on `cutOff` is called when a pause `now` is recorded; before there is work it cuts off nothing. */
  onPauseNow(cutOff: () => void): void {
    this.cutOff = cutOff;
  }

  /** Returns when no control record is being written. */
  async quiet(): Promise<void> {
    await condition(() => this.writing === 0);
  }

  /** One that holds already is answered, and leaves no second record. */
  private async pause(now: boolean): Promise<ControlState> {
    const { paused, pausedNow = false } = this.folded;
    if (this.settled && paused && (pausedNow || !now)) return this.control;
    return this.write('pause', () => ({ kind: 'pause', ...(now ? { now } : {}) }));
  }

  /** Of a run that nothing holds it is answered, and leaves no record. */
  private async resume(): Promise<ControlState> {
    if (this.settled && !this.folded.paused && !this.isBlocked()) return this.control;
    return this.write('resume', () => ({ kind: 'resume' }));
  }

  /** What is folded is all that was asked for: a pause or a resume that is being written may turn it round. */
  private get settled(): boolean {
    return this.record !== null && this.writing === 0;
  }

  /** `change` is asked when the run is open. */
  private async write(kind: ControlChange['kind'], change: () => ControlChange): Promise<ControlState> {
    this.writing += 1;
    try {
      // The id is unique within the workflow only; a run may have several workflows after another.
      const updateId = `${workflowInfo().firstExecutionRunId}/${currentUpdateInfo()?.id ?? 'unknown'}`;
      // A run that is blocked before it is open has nowhere to record this; it must hear of it to open at all.
      const early = kind === 'resume' && this.record === null;
      if (early) this.resumes += 1;
      await condition(() => this.record !== null);
      if (!this.record) throw ApplicationFailure.nonRetryable('The run was never opened', 'InvalidSpec');
      const control = await this.record(updateId, change());
      if (kind === 'stopAfter') this.passedStop = null;
      this.adopt(control);
      if (kind === 'resume' && !early) this.resumes += 1;
      return control;
    } finally {
      this.writing -= 1;
    }
  }

  /**
   * The folded control as it is stored. Two records may be written at once: the one with the higher number has folded in the
   * other.
   */
  adopt(control: ControlState): void {
    if (control.n >= this.folded.n) this.folded = control;
    this.changed(this.control);
    if (this.folded.pausedNow) this.cutOff();
  }
}

function checkStopAfter(stop: StopAfter): void {
  const step: unknown = (stop as StopAfter | null)?.step;
  if (typeof step === 'number' && Number.isInteger(step) && step >= 0) return;
  throw refused(
    `stopAfter takes the last step to run, for example {"step": 120}, not ${JSON.stringify(stop)}`,
  );
}

function refused(message: string): ApplicationFailure {
  return ApplicationFailure.nonRetryable(message, 'InvalidUpdate');
}
