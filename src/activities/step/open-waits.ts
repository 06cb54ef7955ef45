// What the episodes of an attempt are waiting for. It is sent with the heartbeat, so that people see why a run makes no progress.

/** The wait as people see it. Times are in milliseconds since 1970 by the worker's clock. */
export interface ReportedWait {
  /** An environment's key, `store`, or `policy server`. */
  waiting: string;
  waiting_since: number;
  /** Number of episodes that wait for this; 0 if the attempt waits before its first episode. */
  waiting_episodes: number;
  /** Last error message of the environment, the store or the policy server. */
  waiting_reason?: string;
  /** When the run will be blocked if there is no answer by then. */
  waiting_until?: number;
}

export interface Wait {
  /** An environment's key, `store`, or `policy server`. */
  for: string;
  reason?: string;
  until?: number;
}

export class OpenWaits {
  private readonly open = new Map<string, Wait & { since: number }>();

  /** Notes that an episode waits; may be called repeatedly during one wait. */
  goesOn(who: string, wait: Wait): void {
    const before = this.open.get(who);
    const since = before?.for === wait.for ? before.since : Date.now();
    this.open.set(who, { ...wait, since });
  }

  /** Notes that the episode's wait is over; returns false if it was not waiting. */
  ends(who: string): boolean {
    return this.open.delete(who);
  }

  /** The longest wait, because it is the first to end the attempt; empty if nothing waits. */
  get longest(): ReportedWait | Record<string, never> {
    const open = [...this.open.values()].sort((a, b) => a.since - b.since);
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
