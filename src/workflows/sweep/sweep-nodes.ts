// The nodes of one sweep. Each of its workers holds one lease at a time, and releases it after a while so that waiting runs get their turn.
import { CancellationScope, condition, log } from '@temporalio/workflow';
import { nodeIsGone } from '../activity-failures.js';
import { sweeping } from '../policies.js';
import {
  type AskedLease,
  type HeldLease,
  isToBeAsked,
  type LeaseHolder,
  RunLeases,
} from '../pool/run-leases.js';

/** The work that a sweep's workers share. */
export interface SweepWork<T> {
  /** True if an item is left, or may be left. */
  hasMore(): boolean;
  /** The next item; null if no item is left after all. */
  next(): Promise<T | null>;
  /** Works on one item. A failure ends the sweep, unless the node did not take the work in time. */
  work(node: string, item: T): Promise<void>;
  /** Called when the node was lost before the work on `item` ended. */
  lost(item: T): void;
  /** True if no more work may begin. */
  isOver(): boolean;
}

export class SweepNodes {
  private readonly leases: RunLeases;
  private readonly asked = new Set<AskedLease>();

  /** `changed` is called when the pool sends something new. */
  constructor(holder: LeaseHolder, changed: () => void) {
    this.leases = new RunLeases(holder, undefined, changed);
  }

  /** Receives the pool's messages from now on. */
  listen(): void {
    this.leases.listen();
  }

  /** Why the sweep holds no node; null if it holds one or needs none. */
  get waitsFor(): string | null {
    if (this.leases.held.length > 0) return null;
    for (const { waiting } of this.asked) if (waiting) return waiting.why;
    return null;
  }

  /** One worker: takes items and works on them, on one node at a time, until the work is over. */
  async serve<T>(work: SweepWork<T>): Promise<void> {
    for (;;) {
      await condition(() => work.isOver() || work.hasMore());
      const held = await this.lease(() => work.isOver() || !work.hasMore());
      if (held === null && work.isOver()) return;
      if (held === null) continue;
      const givenBackAt = Date.now() + sweeping.turnMs;
      try {
        while (Date.now() < givenBackAt) {
          const item = await work.next();
          if (item === null) break;
          if (await this.onLease(held, () => work.work(held.node, item))) continue;
          work.lost(item);
          break;
        }
      } finally {
        this.leases.release(held);
      }
    }
  }

  /** Releases all leases, at the end or before continuing as new. */
  async released(): Promise<void> {
    this.leases.releaseAll();
    await CancellationScope.nonCancellable(() => condition(() => this.leases.sending === 0));
  }

  /** Returns false if the node was lost before the work ended. */
  private async onLease(held: HeldLease, work: () => Promise<void>): Promise<boolean> {
    const scope = new CancellationScope();
    const working = scope.run(work);
    try {
      const done = await Promise.race([working.then(() => true), held.ended.then(() => false)]);
      if (!done) {
        // Cancels the work without waiting for it: a lost node may never answer.
        working.catch(() => undefined);
        scope.cancel();
      }
      return done;
    } catch (error) {
      if (!nodeIsGone(error)) throw error;
      log.warn('A node does not start its work', { node: held.node });
      this.leases.suspect(held);
      return false;
    }
  }

  /** Waits for a lease; null if `over` returns true first. */
  private async lease(over: () => boolean): Promise<HeldLease | null> {
    const asked = this.leases.ask();
    this.asked.add(asked);
    const granted = (): HeldLease | undefined => this.leases.held.find(({ lease }) => lease === asked.lease);
    const isAnswered = (): boolean => granted() !== undefined || isToBeAsked(asked);
    try {
      while (!granted() && !over()) {
        await this.leases.request(asked, 'find a node for the sweep');
        await condition(() => isAnswered() || over(), Math.max(asked.askAgainAt - Date.now(), 1));
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
