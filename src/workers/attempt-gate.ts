// Two attempts of one activity in one worker (R28): the newer aborts the older and waits until it has let go.
// It happens when the server has given an attempt up (a time-out, a restart of the server) that still runs here.

interface Entered {
  abort: AbortController;
  left: Promise<void>;
}

export class AttemptSuperseded extends Error {
  constructor(activity: string) {
    super(`a newer attempt of ${activity} has begun in this worker`);
    this.name = 'AttemptSuperseded';
  }
}

export class AttemptGate {
  private readonly entered = new Map<string, Entered>();

  /** Runs `work` alone among all attempts of `activity`; its signal rises when a newer one comes. */
  async enter<T>(activity: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const older = this.entered.get(activity);
    const abort = new AbortController();
    let leave = (): void => undefined;
    const left = new Promise<void>((resolve) => {
      leave = resolve;
    });
    const mine = { abort, left: older ? Promise.all([older.left, left]).then(() => undefined) : left };
    this.entered.set(activity, mine);
    try {
      if (older) {
        older.abort.abort(new AttemptSuperseded(activity));
        await older.left;
      }
      abort.signal.throwIfAborted();
      return await work(abort.signal);
    } finally {
      leave();
      if (this.entered.get(activity) === mine) this.entered.delete(activity);
    }
  }
}
