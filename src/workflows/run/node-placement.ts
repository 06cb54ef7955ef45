// Decides on which nodes a run works. Placement is never truth: if a node is gone, any other node continues from the records.
import { CancellationScope, condition, isCancellation, log } from '@temporalio/workflow';
import type { Interruption } from '../../activities/contracts.js';
import { hasDiverged, nodeIsGone, standsStill } from '../activity-failures.js';
import { blockedUntilResumed, untilFixed } from './blocking.js';
import type { ControlDesk } from './control-desk.js';
import { Interruptions } from '../interruptions.js';
import { placing, remedies } from '../policies.js';
import type { Place } from '../run-activities.js';
import {
  type AskedLease,
  type CarriedLeases,
  type HeldLease,
  isToBeAsked,
  type LeaseHolder,
  RunLeases,
} from '../pool/run-leases.js';
import type { RunProgress } from './run-progress.js';

/** The placement's state, carried over continue-as-new. */
export interface CarriedPlacement extends CarriedLeases {
  /** Absent if nothing interrupted the run. */
  interruptions?: readonly Interruption[];
}

export class NodePlacement {
  private readonly leases: RunLeases;
  private readonly interruptions: Interruptions;
  private search: { asked: AskedLease; over: Promise<void> } | null = null;
  private readonly moving = new Map<string, Promise<boolean>>();
  /** Number of pieces of work under way. */
  private working = 0;
  /** Number of activities on ended leases that the server has not closed yet. `tries` keeps their ids distinct. */
  private leftBehind = 0;
  private tries = 0;

  /** Receives the pool's messages from now on. */
  constructor(
    private readonly desk: ControlDesk,
    private readonly progress: RunProgress,
    private readonly holder: LeaseHolder,
    carried: CarriedPlacement | undefined,
  ) {
    this.interruptions = new Interruptions(carried?.interruptions);
    this.leases = new RunLeases(
      holder,
      carried,
      () => this.show(),
      (revoked) => {
        if (!this.isHeldUp) this.interruptions.nodeGone(revoked);
      },
    );
    this.leases.listen();
    this.show();
    // This loop ends with the workflow.
    this.giveBackWhileIdle().catch(() => undefined);
  }

  /** Returns when the run holds at least one lease. Also asks for the other nodes that the run may use, but does not wait for them. */
  async ready(): Promise<void> {
    await this.lease();
    // The first node fixes the run's numerics, so other nodes are requested only after the base is recorded (R18).
    if (this.progress.status.step >= 0) this.leases.askForMore();
  }

  /**
   * The nodes held now; updates and evaluations use the first. There may be fewer nodes than the run asked for, and they may change with
   * each step.
   */
  granted(): string[] {
    return this.leases.held.map(({ node }) => node);
  }

  /**
   * Runs `work` on the run's first node, or on `preferred` while that node's lease is held. Moves to another node if the node is gone. If
   * `work` cannot go on, waits for a person, like `untilFixed`.
   */
  onNode<T>(
    work: (place: Place) => Promise<T>,
    resumed?: (failure: string) => void,
    preferred?: string,
  ): Promise<T> {
    const attempt = async (): Promise<T> => {
      let used = '';
      const noted = (place: Place): Promise<T> => {
        used = place.node;
        return work(place);
      };
      try {
        return await this.onLivingNode(noted, preferred);
      } catch (error) {
        const why = this.reasonToMove(error);
        if (why === null || !(await this.moveFrom(used, why))) throw error;
        return this.onLivingNode(work);
      }
    };
    return untilFixed(this.desk, this.progress, attempt, resumed);
  }

  /** Why another node may succeed, as the end of a sentence about this node; null if another node would fail in the same way. */
  private reasonToMove(error: unknown): string | null {
    if (hasDiverged(error)) return 'because its result disagrees with a record';
    return standsStill(error) ? 'because work keeps failing there' : null;
  }

  /** Like `onNode`, but throws every failure except the loss of a node. */
  async onLivingNode<T>(work: (place: Place) => Promise<T>, preferred?: string): Promise<T> {
    for (;;) {
      const outcome = await this.onLease(await this.lease(preferred), work);
      if (outcome) return outcome.value;
    }
  }

  /** Releases all nodes at the end of the run. */
  async released(): Promise<void> {
    this.leases.releaseAll();
    await CancellationScope.nonCancellable(() => condition(() => this.hasNotifiedAll));
  }

  /** True if all messages to the pool are sent: the end of this execution would lose unsent ones. */
  get hasNotifiedAll(): boolean {
    return this.leases.sending === 0;
  }

  carried(): CarriedPlacement {
    const { undelivered } = this.interruptions;
    return { ...this.leases.carried(), ...(undelivered.length > 0 ? { interruptions: undelivered } : {}) };
  }

  /** True if the run waits for a person: a lost node costs it nothing then. */
  private get isHeldUp(): boolean {
    return ['paused', 'blocked'].includes(this.progress.status.phase);
  }

  /** A run that waits for a person gives its nodes back after a while; its next work asks for a node again. */
  private async giveBackWhileIdle(): Promise<void> {
    const isIdle = (): boolean => this.working === 0 && this.leases.held.length > 0 && this.isHeldUp;
    for (;;) {
      await condition(isIdle);
      if (!(await condition(() => !isIdle(), placing.idleRunHoldsMs))) this.leases.releaseAll();
    }
  }

  /** Runs `work` on a lease; null if the lease ended before the work did. */
  private async onLease<T>(
    held: HeldLease,
    work: (place: Place) => Promise<T>,
  ): Promise<{ value: T } | null> {
    const scope = new CancellationScope();
    const { tries, interruptions } = this;
    const place = { node: held.node, project: this.holder.project, tries, interruptions };
    const working = scope.run(() => work(place));
    this.working += 1;
    try {
      const done = working.then((value) => ({ value }));
      const outcome = await Promise.race([done, held.ended.then(() => null)]);
      if (!outcome) this.leave(scope, working);
      return outcome;
    } catch (error) {
      if (!nodeIsGone(error)) throw error;
      this.leases.suspect(held);
      return null;
    } finally {
      this.working -= 1;
    }
  }

  /** Cancels the work on an ended lease without waiting for it: a lost node may never answer. */
  private leave(scope: CancellationScope, working: Promise<unknown>): void {
    this.leftBehind += 1;
    this.tries += 1;
    const closed = (): void => {
      this.leftBehind -= 1;
      if (this.leftBehind === 0) this.tries = 0;
    };
    working.then(closed, closed);
    scope.cancel();
  }

  /** Moves from `node` to another node, in one move for all parts of a step. True if the run has left `node`. */
  private moveFrom(node: string, why: string): Promise<boolean> {
    const left = this.leases.held.find((held) => held.node === node);
    if (!left) return Promise.resolve(true);
    return shared(() => {
      const moving =
        this.moving.get(node) ?? this.moveLease(left, why).finally(() => this.moving.delete(node));
      this.moving.set(node, moving);
      return moving;
    });
  }

  private async moveLease(left: HeldLease, why: string): Promise<boolean> {
    const isLeft = (): boolean => !this.leases.held.includes(left);
    let other = this.leases.held.find((held) => held !== left);
    if (!other) {
      const asked = this.leases.ask([left.node], true);
      const summary = `find a node other than ${left.node}, ${why}`;
      await this.leases.request(asked, summary);
      const found = (): HeldLease | undefined => this.leases.held.find(({ lease }) => lease === asked.lease);
      await condition(() => found() !== undefined || asked.refused || isLeft(), placing.firstAskAgainMs);
      other = found();
      if (!other && !asked.refused) this.leases.release(asked);
    }
    // If the node was lost in the meantime, the caller searches for a living one.
    if (!other) return isLeft();
    log.warn(`Work is repeated on another node, ${why}`, {
      node: left.node,
      other: other.node,
    });
    this.leases.prefer(other);
    this.leases.shun(left);
    return true;
  }

  /** The lease to work on. Parts of a step that run side by side share one search. */
  private async lease(preferred?: string): Promise<HeldLease> {
    for (;;) {
      const { held } = this.leases;
      const lease = held.find(({ node }) => node === preferred) ?? held[0];
      if (lease) return lease;
      await shared(() => {
        this.search ??= this.searchFor(this.leases.ask());
        return this.search.over;
      });
    }
  }

  private searchFor(asked: AskedLease): { asked: AskedLease; over: Promise<void> } {
    const over = this.find(asked).finally(() => {
      this.search = null;
      this.show();
    });
    return { asked, over };
  }

  /** Returns when a lease is held. Shows why the run waits, and blocks the run if waiting alone cannot help. */
  private async find(asked: AskedLease): Promise<void> {
    const found = (): boolean => this.leases.held.length > 0;
    const isAnswered = (): boolean => found() || isToBeAsked(asked);
    const summary = `find a node for step ${this.progress.status.step + 1}`;
    let since = Date.now();
    for (;;) {
      await untilFixed(this.desk, this.progress, () => this.leases.request(asked, summary));
      while (!found() && Date.now() < asked.askAgainAt) {
        const block = this.blocked(asked);
        if (block) {
          const { cause } = asked.waiting ?? {};
          const fixed = (): boolean => isAnswered() || asked.waiting?.cause !== cause;
          await blockedUntilResumed(this.desk, this.progress, block.reason, block.remedy, fixed);
          if (asked.noneSince !== null) asked.noneSince = Date.now();
          // The time for which the run was blocked does not count as waiting for a node: the control records show it.
          if (!fixed()) since = Date.now();
          break;
        }
        const deadline = Math.min(asked.askAgainAt, (asked.noneSince ?? Infinity) + placing.deadlineMs);
        await condition(() => isAnswered() || asked.waiting?.cause === 'unfit', deadline - Date.now());
      }
      if (found()) return this.interruptions.waitedSince(since);
    }
  }

  private blocked({ waiting, noneSince }: AskedLease): { reason: string; remedy: string } | null {
    if (waiting?.cause === 'unfit')
      return { reason: waiting.why, remedy: waiting.remedy ?? remedies.EngineUnfit };
    if (noneSince === null || Date.now() - noneSince < placing.deadlineMs) return null;
    const minutes = Math.round((Date.now() - noneSince) / 60_000);
    return {
      reason: `No node has been alive for ${minutes} minutes`,
      remedy: 'Start a node worker (`longhaul up` starts one on this machine)',
    };
  }

  private show(): void {
    this.progress.placed(this.granted(), this.search?.asked.waiting?.why ?? null);
  }
}

/** Shares work between callers. If the caller that started the work is cancelled, so is the work; the other callers then start it again. */
async function shared<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!isCancellation(error) || CancellationScope.current().consideredCancelled) throw error;
    }
  }
}
