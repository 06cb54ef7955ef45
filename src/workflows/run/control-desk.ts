// Turns Updates into control records (R21). An Update is answered when its record is stored, and no step is planned in the meantime.
// Validators are synchronous and pure: an asynchronous one that rejects would fail the workflow task instead of the Update. A signal of the
// same name does the same (`control-signals.ts`).
import type { UpdateDefinition } from '@temporalio/common';
import {
  ApplicationFailure,
  condition,
  currentUpdateInfo,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { ControlState } from '../../activities/contracts.js';
import type { ControlChange, Hyperparameters } from '../../spec/records/control-records.js';
import { ControlSignals, type NoteSignal, type Verb } from './control-signals.js';
import { hyperparameterNames, problemWith } from '../hyperparameters.js';
import {
  checkpointNowUpdate,
  pauseNowUpdate,
  pauseUpdate,
  resumeUpdate,
  setHyperparametersUpdate,
  type StopAfter,
  stopAfterUpdate,
} from '../messages.js';

type RecordControl = (updateId: string, change: ControlChange) => Promise<ControlState>;

export const noControl: ControlState = { n: 0, paused: false, stopAfter: null, lr: null, temperature: null };

/** The run that is controlled, as people see it. */
interface ControlledRun {
  readonly waitsForPerson: boolean;
  controlled(control: ControlState): void;
  signalled: NoteSignal;
}

export class ControlDesk {
  private folded: ControlState = noControl;
  /** A stop that the run had reached before this workflow started, which goes past it. Null once another stop is requested. */
  passedStop: number | null = null;
  /** Grows with each `resume`, so that a blocked run notices it even if no pause was recorded. */
  resumes = 0;
  private writing = 0;
  /** Settles when every request that arrived so far is recorded. */
  private recorded: Promise<unknown> = Promise.resolve();
  private readonly signals: ControlSignals;
  private record: RecordControl | null = null;
  private nextBoundary = (): number => 0;
  private cutOff = (): void => undefined;

  /** Registers the handlers; call before the first await of the workflow. `spec`: the workflow's unchecked input. */
  constructor(
    spec: unknown,
    private readonly controlled: ControlledRun,
  ) {
    this.signals = new ControlSignals(
      (note) => controlled.signalled(note),
      () => this.folded.n,
    );
    this.offer(pauseUpdate, {
      take: (id) => this.pause(id, false),
      description: 'Pause the run at the next step boundary',
    });
    this.offer(pauseNowUpdate, {
      take: (id) => this.pause(id, true),
      description: 'Cut off the episodes in flight, and pause the run in the middle of its step',
    });
    this.offer(resumeUpdate, {
      take: (id) => this.resume(id),
      description: 'Continue after a pause, or try again after the cause of a block was fixed',
    });
    this.offer(setHyperparametersUpdate, {
      problem: (values) => problemWith(values, spec),
      take: (id, values: Hyperparameters) =>
        this.write(id, 'setHyperparameters', () => ({ kind: 'setHyperparameters', ...values })),
      description: `Set hyperparameters from the next plan on, for example {"lr": 0.0001}: ${hyperparameterNames.join(', ')}`,
    });
    this.offer(checkpointNowUpdate, {
      take: (id) =>
        this.write(id, 'checkpointNow', () => ({ kind: 'checkpointNow', step: this.nextBoundary() })),
      description: 'Upload the state of the next step boundary',
    });
    this.offer(stopAfterUpdate, {
      problem: problemWithStop,
      take: (id, { step }) => this.write(id, 'stopAfter', () => ({ kind: 'stopAfter', step })),
      description: 'End the run after a step: {"step": 120}; a step in the past ends it at the next boundary',
    });
  }

  /** From now on, notes signals that the run does not know; call after all other handlers are registered. */
  noteUnknownSignals(): void {
    this.signals.noteUnknown();
  }

  /** Offers the verb as an Update and as a signal. Its ids are unique within one execution, and a run may have several executions. */
  private offer<Input extends unknown[]>(
    update: UpdateDefinition<ControlState, Input>,
    verb: Verb<Input>,
  ): void {
    const { problem = () => null, take, description } = verb;
    setHandler(
      update,
      (...input: Input) =>
        take(`${workflowInfo().firstExecutionRunId}/${currentUpdateInfo()?.id ?? 'unknown'}`, ...input),
      {
        validator: (...input: Input) => {
          const found = problem(...input);
          if (found !== null) throw ApplicationFailure.nonRetryable(found, 'InvalidUpdate');
        },
        description,
      },
    );
    this.signals.offer(update.name, verb);
  }

  /** The folded control, without a stop that this workflow was started to go past. */
  get control(): ControlState {
    const stopAfter = this.folded.stopAfter === this.passedStop ? null : this.folded.stopAfter;
    return { ...this.folded, stopAfter };
  }

  /** The run is opened: changes that arrived before are recorded now. */
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

  /** From now on, `cutOff` is called when a pause `now` is recorded; `cutOff` does nothing if no work is in flight. */
  onPauseNow(cutOff: () => void): void {
    this.cutOff = cutOff;
  }

  /** Returns when no control record is being written. */
  async quiet(): Promise<void> {
    await condition(() => this.writing === 0);
  }

  /** If the run is already paused in this way, answers without a second record. */
  private async pause(id: string, now: boolean): Promise<ControlState> {
    const { paused, pausedNow = false } = this.folded;
    if (this.settled && paused && (pausedNow || !now)) return this.control;
    return this.write(id, 'pause', () => ({ kind: 'pause', ...(now ? { now } : {}) }));
  }

  /** Resumes the run. If the run is neither paused, blocked nor failing, answers at once, without a record. */
  private async resume(id: string): Promise<ControlState> {
    if (this.settled && !this.folded.paused && !this.controlled.waitsForPerson) return this.control;
    return this.write(id, 'resume', () => ({ kind: 'resume' }));
  }

  /** True if no record is being written, so the folded control includes every request. */
  private get settled(): boolean {
    return this.record !== null && this.writing === 0;
  }

  /** Writes the record of a change, after those of earlier requests; `change` is called once the run is open. */
  private async write(
    id: string,
    kind: ControlChange['kind'],
    change: () => ControlChange,
  ): Promise<ControlState> {
    this.writing += 1;
    try {
      // A run that is blocked before it is open cannot record the resume, but needs it in order to open.
      const early = kind === 'resume' && this.record === null;
      if (early) this.resumes += 1;
      const control = await this.afterEarlier(async () => {
        await condition(() => this.record !== null);
        if (!this.record) throw ApplicationFailure.nonRetryable('The run was never opened', 'InvalidSpec');
        return this.record(id, change());
      });
      if (kind === 'stopAfter') this.passedStop = null;
      this.adopt(control);
      if (kind === 'resume' && !early) this.resumes += 1;
      return control;
    } finally {
      this.writing -= 1;
      // Answered together: a sender that is answered before the others could ask again in time, and no step would ever be planned.
      await this.quiet();
    }
  }

  /** Of two requests the later one wins: records written side by side could be stored in the other order. */
  private afterEarlier<T>(record: () => Promise<T>): Promise<T> {
    const recorded = this.recorded.then(record);
    this.recorded = recorded.catch(() => undefined);
    return recorded;
  }

  /** Takes over the folded control as stored. */
  adopt(control: ControlState): void {
    if (control.n >= this.folded.n) this.folded = control;
    this.controlled.controlled(this.control);
    if (this.folded.pausedNow) this.cutOff();
  }
}

function problemWithStop(stop: StopAfter): string | null {
  const step: unknown = (stop as StopAfter | null | undefined)?.step;
  if (typeof step === 'number' && Number.isInteger(step) && step >= 0) return null;
  return `stopAfter takes the last step to run, for example {"step": 120}, not ${JSON.stringify(stop) ?? 'nothing'}`;
}
