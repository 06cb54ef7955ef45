// How a node worker leaves: a first SIGTERM or SIGINT, such as the notice that a machine will be taken away, begins it; the end of the
// grace or a second signal ends it at once.
import { ApplicationFailure, ApplicationFailureCategory } from '@temporalio/common';

export interface DepartureOptions {
  node: string;
  graceMs: number;
  log(message: string): void;
  /** Ends the process. */
  exit?(code: number): void;
}

/** Episodes near their end may end; the run moves at the same time, and does not wait for them. */
const longestFinishMs = 2_000;

export class Departure {
  private readonly stop = new AbortController();
  private readonly last = new AbortController();
  private begin: (() => void) | null = null;
  private asked = false;

  constructor(private readonly options: DepartureOptions) {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => this.onSignal(signal));
  }

  /** True from the signal on. */
  get begun(): boolean {
    return this.asked;
  }

  /** Aborts when work on the engine has to stop; attempts fail with its reason: a retry elsewhere is as good. */
  get cutOff(): AbortSignal {
    return this.stop.signal;
  }

  /** Aborts when there is only time left to say good-bye. */
  get lastCall(): AbortSignal {
    return this.last.signal;
  }

  /** From now on there is something to leave in order. `begin`: called once. */
  serving(begin: () => void): void {
    this.begin = begin;
  }

  private onSignal(signal: NodeJS.Signals): void {
    const { node, graceMs, log, exit = (code) => process.exit(code) } = this.options;
    if (this.asked) {
      log(`ended by a second signal, ${signal}`);
      return exit(1);
    }
    // No work has begun yet.
    if (!this.begin) return exit(0);
    this.asked = true;
    log(`${signal}: leaving within ${graceMs / 1000} s`);
    const failure = drainingFailure(node);
    const after = (milliseconds: number, act: () => void): void => void setTimeout(act, milliseconds).unref();
    after(Math.min(longestFinishMs, graceMs / 4), () => this.stop.abort(failure));
    after(graceMs * 0.8, () => this.last.abort(failure));
    after(graceMs * 0.9, () => {
      log('ended before all of its work had');
      exit(0);
    });
    this.begin();
  }
}

/** Work that is cut off fails with it, and is tried again. */
export function drainingFailure(node: string): ApplicationFailure {
  return ApplicationFailure.create({
    message: `node ${node} leaves; its work goes on from the records, on another node or on this one when it is back`,
    type: 'NodeDraining',
    nextRetryDelay: 100,
    category: ApplicationFailureCategory.BENIGN,
  });
}
