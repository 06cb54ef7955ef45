// What the episodes of an attempt wait for: it goes with the heartbeat, so that people see a run that stands still and why.

/** For people. Times are of the worker's clock, milliseconds since 1970. */
export interface WaitTold {
  /** An environment's key, or `store`. */
  waiting: string;
  waiting_since: number;
  /** How many episodes wait for it. */
  waiting_episodes: number;
  /** What it said last. */
  waiting_reason?: string;
  /** When the run is blocked where it does not answer until then. */
  waiting_until?: number;
}

export interface Wait {
  /** An environment's key, or `store`. */
  for: string;
  reason?: string;
  until?: number;
}

export class OpenWaits {
  readonly #open = new Map<string, Wait & { since: number }>();

  /** May be called again and again while it lasts. */
  goesOn(who: string, wait: Wait): void {
    const before = this.#open.get(who);
    const since = before?.for === wait.for ? before.since : Date.now();
    this.#open.set(who, { ...wait, since });
  }

  /** False where it waited for nothing. */
  ends(who: string): boolean {
    return this.#open.delete(who);
  }

  /** The longest, which is the one that ends the attempt first; empty where nothing waits. */
  get told(): WaitTold | Record<string, never> {
    const open = [...this.#open.values()].sort((a, b) => a.since - b.since);
    const [longest] = open;
    if (!longest) return {};
    return {
      waiting: longest.for,
      waiting_since: longest.since,
      waiting_episodes: open.filter((one) => one.for === longest.for).length,
      ...(longest.reason === undefined ? {} : { waiting_reason: longest.reason }),
      ...(longest.until === undefined ? {} : { waiting_until: longest.until }),
    };
  }
}
