// If two attempts of one activity are in one worker, the newer aborts the older and waits until it has ended (R28). This happens when the
// server gave up an attempt that still runs here, after a time-out or a restart of the server.

interface Entered {
  abort: AbortController;
  left: Promise<void>;
  /** The working attempt and all attempts that wait for it share this object. `movedAt`: time of the last progress. */
  work: { movedAt: number };
}

export class AttemptSuperseded extends Error {
  constructor(activity: string) {
    super(`a newer attempt of ${activity} has begun in this worker`);
    this.name = 'AttemptSuperseded';
  }
}

/** An older attempt neither ends nor makes progress, and only the end of the process can end it. */
class AttemptWedged extends Error {
  constructor(activity: string, limitMs: number) {
    super(
      `an older attempt of ${activity} was asked to stop, but has made no progress for ${limitMs / 1000} s: ` +
        'this worker ends so that its supervisor starts it again; everything that was finished is in the store',
    );
    this.name = 'AttemptWedged';
  }
}

interface AttemptGateOptions {
  /** Longest time without progress of an attempt that was asked to stop. */
  limitMs?: number;
  /** Must end the process. By default the error is thrown and not caught, so that worker-exit.ts ends the process. */
  wedged?(error: AttemptWedged): void;
}

const defaultLimitMs = 60_000;

export class AttemptGate {
  private readonly entered = new Map<string, Entered>();

  constructor(private readonly options: AttemptGateOptions = {}) {}

  /**
   * Runs `work` when no other attempt of `activity` works. When a newer attempt comes, the signal of `work` aborts; from then on, each call
   * of `progress` gives `work` more time to end.
   */
  async enter<T>(
    activity: string,
    work: (signal: AbortSignal, progress: () => void) => Promise<T>,
  ): Promise<T> {
    const gate = gateOf(activity);
    const older = this.entered.get(gate);
    const abort = new AbortController();
    let leave = (): void => undefined;
    const left = new Promise<void>((resolve) => {
      leave = resolve;
    });
    const mine: Entered = {
      abort,
      left: older ? Promise.all([older.left, left]).then(() => undefined) : left,
      work: older?.work ?? { movedAt: 0 },
    };
    this.entered.set(gate, mine);
    try {
      if (older) {
        older.abort.abort(new AttemptSuperseded(activity));
        await this.untilLeft(activity, older);
      }
      abort.signal.throwIfAborted();
      return await work(abort.signal, () => {
        mine.work.movedAt = performance.now();
      });
    } finally {
      leave();
      if (this.entered.get(gate) === mine) this.entered.delete(gate);
    }
  }

  private async untilLeft(activity: string, older: Entered): Promise<void> {
    const { limitMs = defaultLimitMs, wedged = thrown } = this.options;
    const abortedAt = performance.now();
    const watch = setInterval(() => {
      if (performance.now() - Math.max(abortedAt, older.work.movedAt) < limitMs) return;
      clearInterval(watch);
      wedged(new AttemptWedged(activity, limitMs));
    }, limitMs / 20);
    try {
      await older.left;
    } finally {
      clearInterval(watch);
    }
  }
}

/** Name of the gate: without the suffix (`collect.1`) of work that came back to this worker under a new lease. */
function gateOf(activity: string): string {
  return activity.replace(/\.\d+$/, '');
}

function thrown(error: AttemptWedged): never {
  throw error;
}
