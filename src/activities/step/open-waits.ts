// What the episodes of an attempt wait for: sent with the heartbeat, so that people see that a run stands still and why.

/** For people. Times are by the worker's clock, milliseconds since 1970. */
export interface WaitTold {
  /** An environment's key, or `store`. */
  waiting: string;
  waiting_since: number;
  /** How many episodes wait for it. */
  waiting_episodes: number;
  /** Its last message. */
  waiting_reason?: string;
  /** When the run is blocked if it does not answer before. */
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

  /** May be called repeatedly while the wait lasts. */
  goesOn(who: string, wait: Wait): void {
    const before = this.#open.get(who);
    const since = before?.for === wait.for ? before.since : Date.now();
    this.#open.set(who, { ...wait, since });
  }

  /** False if nothing was waited for. */
  ends(who: string): boolean {
    return this.#open.delete(who);
  }

  /** The longest wait, which ends the attempt first; empty if there is no wait. */
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
