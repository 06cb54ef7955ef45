// Two attempts of one activity in one worker (R28): the newer aborts the older and waits until it has let go. This happens when the server
// has given up an attempt (a time-out, a restart of the server) that still runs here.

interface Entered {
  abort: AbortController;
  left: Promise<void>;
  /** Shared by the working attempt and those that wait for it. */
  work: { movedAt: number };
}

export class AttemptSuperseded extends Error {
  constructor(activity: string) {
    super(`a newer attempt of ${activity} has begun in this worker`);
    this.name = 'AttemptSuperseded';
  }
}

/** An older attempt neither ends nor progresses, and nothing within the process can end it. */
export class AttemptWedged extends Error {
  constructor(activity: string, limitMs: number) {
    super(
      `an older attempt of ${activity} was asked to stop and has shown no progress for ${limitMs / 1000} s: ` +
        'this worker ends so that its supervisor starts it again; everything that was finished is in the store',
    );
    this.name = 'AttemptWedged';
  }
}

export interface AttemptGateOptions {
  /** How long an attempt that was asked to stop may go without progress. */
  limitMs?: number;
  /** Has to end the process. By default the error is thrown uncaught, which worker-exit.ts turns into an exit. */
  wedged?(error: AttemptWedged): void;
}

const defaultLimitMs = 60_000;

export class AttemptGate {
  private readonly entered = new Map<string, Entered>();

  constructor(private readonly options: AttemptGateOptions = {}) {}

  /**
   * Runs `work` alone among all attempts of `activity`; its signal aborts when a newer one comes, and then each call of `progress` gives it
   * more time to let go.
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

/** Work that was left behind with its lease and has come back to this worker under a new lease has another name: `collect.1`. */
function gateOf(activity: string): string {
  return activity.replace(/\.\d+$/, '');
}

function thrown(error: AttemptWedged): never {
  throw error;
}
