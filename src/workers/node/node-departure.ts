// How a node worker leaves. A first SIGTERM or SIGINT, for example when a spot machine is reclaimed, starts the departure. The end of the
// grace period, or a second signal, ends the process at once.
import { ApplicationFailure, ApplicationFailureCategory } from '@temporalio/common';

interface DepartureOptions {
  node: string;
  graceMs: number;
  log(message: string): void;
  /** Ends the process. */
  exit?(code: number): void;
}

/** Running episodes get this time to finish. The run moves to another node meanwhile and does not wait for them. */
const longestFinishMs = 2_000;

export class Departure {
  private readonly stop = new AbortController();
  private readonly last = new AbortController();
  private begin: (() => void) | null = null;
  private asked = false;

  constructor(private readonly options: DepartureOptions) {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => this.onSignal(signal));
  }

  /** True after the first signal. */
  get begun(): boolean {
    return this.asked;
  }

  /** Aborts when work on the engine must stop. Attempts fail with its reason and are retried on another node. */
  get cutOff(): AbortSignal {
    return this.stop.signal;
  }

  /** Aborts when only enough time is left to sign off from the pool. */
  get lastCall(): AbortSignal {
    return this.last.signal;
  }

  /** Call once the worker takes work: from then on, a signal starts an orderly departure. `begin` is called once, at the first signal. */
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
      log('ended before its work had ended');
      exit(0);
    });
    this.begin();
  }
}

/** Failure of work that the departure interrupts; Temporal tries the work again. */
export function drainingFailure(node: string): ApplicationFailure {
  return ApplicationFailure.create({
    message: `node ${node} is shutting down; its work continues from the records, on another node or on this one after a restart`,
    type: 'NodeDraining',
    nextRetryDelay: 100,
    category: ApplicationFailureCategory.BENIGN,
  });
}
