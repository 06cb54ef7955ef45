// The nodes of one sweep: each of its workers holds one lease at a time, for a while, so that runs that wait get their turn.
import { CancellationScope, condition, log } from '@temporalio/workflow';
import { nodeIsGone } from '../workflows/blocking.js';
import { type AskedLease, type HeldLease, type LeaseHolder, RunLeases } from '../workflows/run-leases.js';

/** After so long a lease is given back between two pairs, and asked for again behind whoever waits. */
const turnMs = 10 * 60_000;

export class SweepNodes {
  private readonly leases: RunLeases;
  private readonly asked = new Set<AskedLease>();

  /** Hears the pool from now on; `changed` is called when it says something new. */
  constructor(holder: LeaseHolder, changed: () => void) {
    this.leases = new RunLeases(holder, undefined, changed, () => true);
  }

  /** Why no node is held; null where one is, or nobody waits. */
  get waitsFor(): string | null {
    if (this.leases.held.length > 0) return null;
    for (const { waiting } of this.asked) if (waiting) return waiting.why;
    return null;
  }

  /**
   * Takes one item after another on one node at a time, until `next` has none or `over` says so. An item whose node is lost is taken
   * again on another one; each failure of `work` itself is the caller's.
   */
  async serve<T>(
    next: () => Promise<T | null>,
    work: (node: string, item: T, tries: number) => Promise<void>,
    over: () => boolean,
  ): Promise<void> {
    let item: T | null = null;
    let tries = 0;
    while (!over()) {
      item ??= await next();
      if (item === null) return;
      const held = await this.lease(over);
      if (held === null) return;
      const givenBackAt = Date.now() + turnMs;
      try {
        while (item !== null && !over() && Date.now() < givenBackAt) {
          if (!(await this.onLease(held, item, tries, work))) {
            tries += 1;
            break;
          }
          tries = 0;
          item = await next();
        }
      } finally {
        this.leases.release(held);
      }
      if (item === null) return;
    }
  }

  /** Gives everything back: at the end, and before another execution goes on. */
  async released(): Promise<void> {
    this.leases.releaseAll();
    await CancellationScope.nonCancellable(() => condition(() => this.leases.telling === 0));
  }

  /** False where the node was lost before the work ended. */
  private async onLease<T>(
    held: HeldLease,
    item: T,
    tries: number,
    work: (node: string, item: T, tries: number) => Promise<void>,
  ): Promise<boolean> {
    const scope = new CancellationScope();
    const working = scope.run(() => work(held.node, item, tries));
    try {
      const ended = held.ended.then(() => false);
      const done = await Promise.race([working.then(() => true), ended]);
      if (!done) {
        // A lost node may never answer: its work is called off, and nobody waits for it.
        working.catch(() => undefined);
        scope.cancel();
      } else this.leases.worked(held);
      return done;
    } catch (error) {
      if (!nodeIsGone(error)) throw error;
      log.warn('A node does not take its work', { node: held.node });
      this.leases.suspect(held);
      return false;
    }
  }

  /** Null where the sweep is over before one is granted. */
  private async lease(over: () => boolean): Promise<HeldLease | null> {
    const asked = this.leases.ask();
    this.asked.add(asked);
    const granted = (): HeldLease | undefined => this.leases.held.find(({ lease }) => lease === asked.lease);
    try {
      while (!granted() && !over()) {
        await this.leases.request(asked, 'find a node for the sweep');
        await condition(() => granted() !== undefined || over(), Math.max(asked.askAgainAt - Date.now(), 1));
      }
      const held = granted() ?? null;
      if (held === null) this.leases.release(asked);
      return held;
    } catch (error) {
      this.leases.release(asked);
      throw error;
    } finally {
      this.asked.delete(asked);
    }
  }
}
