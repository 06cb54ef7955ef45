// Control by signals (R21): `temporal workflow signal --name pause` does the same as the Update `pause`. A signal has no answer, so a
// signal that changes nothing is noted in the run's details and in `status`.
import {
  defineSignal,
  log,
  rootCause,
  setDefaultSignalHandler,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import type { ControlState, RunStatus } from '../../activities/contracts.js';

type SignalNote = NonNullable<RunStatus['signals']>[number];

export type NoteSignal = (note: SignalNote) => void;

/** `id`: id of the Update or signal; each writes one record (R21). */
export interface Verb<Input extends unknown[]> {
  /** Why `input` is not valid, or null. */
  problem?: (...input: Input) => string | null;
  take: (id: string, ...input: Input) => Promise<ControlState>;
  description: string;
}

/** Names and reasons come from any sender and are displayed, so they are cut to these lengths. */
const maxNameLength = 40;
const maxReasonLength = 400;

export class ControlSignals {
  private readonly names: string[] = [];
  private received = 0;

  /** `recorded` returns the number of the newest control record that the run knows. */
  constructor(
    private readonly noted: NoteSignal,
    private readonly recorded: () => number,
  ) {}

  offer<Input extends unknown[]>(
    name: string,
    { problem = () => null, take, description }: Verb<Input>,
  ): void {
    this.names.push(name);
    const handle = async (...input: Input): Promise<void> => {
      const id = this.nextId(name);
      const found = problem(...input);
      if (found !== null) return this.note(name, found);
      const before = this.recorded();
      try {
        await take(id, ...input);
        if (this.recorded() === before)
          this.note(name, 'it asks for what is already in force, or the run received it before a reset');
      } catch (error) {
        // An error that leaves the handler would end the workflow.
        this.note(name, rootCause(error) ?? String(error));
      }
    };
    setHandler(defineSignal<Input>(name), handle, { description });
  }

  /** Call after the run's other signals have their handlers: the default handler would otherwise take their signals. */
  noteUnknown(): void {
    setDefaultSignalHandler((name) =>
      this.note(name, `no such signal; a run has the signals ${this.names.join(', ')}`),
    );
  }

  /** Gives a signal the same id after a reset: the same signals arrive in the same order, under the same original execution. */
  private nextId(name: string): string {
    this.received += 1;
    return `${workflowInfo().originalExecutionRunId}/signal-${this.received}-${name}`;
  }

  private note(name: string, reason: string): void {
    const note = {
      name: name.slice(0, maxNameLength),
      reason: reason.slice(0, maxReasonLength),
      at: new Date(Date.now()).toISOString(),
    };
    log.warn('A signal changed nothing', note);
    this.noted(note);
  }
}
