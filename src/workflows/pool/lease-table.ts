// Which run may work on which node: the nodes that report, their leases, and the waiting requests. Pure: messages go into an outbox, and
// time is an argument. Every input may arrive twice and in any order. A node that is declared lost by mistake does no harm, because no
// record depends on where a run works.
import type { NeededNumerics, Numerics } from '../../spec/records/numerics.js';
import type { LeaseRequest, RunWorkflow } from '../../activities/contracts.js';
import {
  type GrantedLease,
  type NodeInstance,
  type NodeReport,
  type PoolView,
  type RevokedLease,
  type WaitingLease,
} from '../messages.js';
import { poolTimes } from '../policies.js';
import { mayFit, waitingReason } from './waiting-reason.js';

export type PoolMessage = { to: RunWorkflow } & (
  | { signal: 'granted'; say: GrantedLease }
  | { signal: 'revoked'; say: RevokedLease }
  | { signal: 'waiting'; say: WaitingLease }
  | { signal: 'refused'; say: { lease: string } }
);

interface PoolNode extends NodeReport {
  lastSeen: number;
  lost: boolean;
  /** A run's work on the node has timed out since its last report. */
  suspected: boolean;
}

interface Lease extends RunWorkflow, NeededNumerics {
  lease: string;
  run: string;
  project: string;
  numerics: Numerics | null;
  node: string;
  since: number;
  /** Run id of the execution that asked. */
  execution?: string;
}

interface Waiter extends LeaseRequest {
  since: number;
  /** The last waiting notice sent to the run; null if none was. */
  told: WaitingLease | null;
}

/** The table's state, carried over continue-as-new. */
export interface LeaseTableState {
  nodes: PoolNode[];
  leases: Lease[];
  queue: Waiter[];
  /** Released, revoked and refused leases: a request that arrives after its release is ignored. */
  ended: { lease: string; revoked: RevokedLease | null }[];
  /** Instances that are draining (`left` is false) or have left. */
  farewells: { instance: string; left: boolean }[];
  /** No node is declared lost before this time. */
  graceUntil: number;
}

const emptyState: LeaseTableState = {
  ...{ nodes: [], leases: [], queue: [], ended: [], farewells: [] },
  graceUntil: 0,
};

/** Nodes that have been silent for this long are forgotten. */
const forgetAfterMs = 24 * 3_600_000;
/** How many ended leases are remembered; a message for an older lease does not arrive any more. */
const remembered = 100;

export class LeaseTable {
  private readonly nodes: Map<string, PoolNode>;
  private readonly leases: Map<string, Lease>;
  private queue: Waiter[];
  private ended: LeaseTableState['ended'];
  private farewells: LeaseTableState['farewells'];
  private graceUntil: number;
  private outbox: PoolMessage[] = [];

  constructor(state: LeaseTableState = emptyState) {
    this.nodes = new Map(state.nodes.map((node) => [node.id, { ...node }]));
    this.leases = new Map(state.leases.map((lease) => [lease.lease, { ...lease }]));
    this.queue = state.queue.map((waiter) => ({ ...waiter }));
    this.ended = [...state.ended];
    this.farewells = [...state.farewells];
    this.graceUntil = state.graceUntil;
  }

  state(): LeaseTableState {
    return {
      nodes: [...this.nodes.values()],
      leases: [...this.leases.values()],
      queue: this.queue,
      ended: this.ended,
      farewells: this.farewells,
      graceUntil: this.graceUntil,
    };
  }

  up(report: NodeReport, now: number): void {
    if (this.farewell(report.instance)?.left) return;
    this.nodes.set(report.id, { ...report, lastSeen: now, lost: false, suspected: false });
    if (this.farewell(report.instance)) this.revokeAllOn(report.id, 'draining');
    // A replaced engine has other numerics, so it would refuse the runs that hold leases.
    for (const lease of this.leasesOn(report.id))
      if (!mayFit(lease, report.numerics)) this.revoke(lease, 'released');
    this.serve(now);
  }

  draining({ id, instance }: NodeInstance, now: number): void {
    if (!this.farewell(instance)) this.remember({ instance, left: false });
    if (this.nodes.get(id)?.instance === instance) this.revokeAllOn(id, 'draining');
    this.serve(now);
  }

  down({ id, instance }: NodeInstance, now: number): void {
    this.farewells = this.farewells.filter((farewell) => farewell.instance !== instance);
    this.remember({ instance, left: true });
    if (this.nodes.get(id)?.instance === instance) {
      this.nodes.delete(id);
      this.revokeAllOn(id, 'lost');
    }
    this.serve(now);
  }

  /** Returns true if the request has to wait now and did not wait before. */
  request(request: LeaseRequest, now: number): boolean {
    const { lease, holding } = request;
    const to = request;
    this.endForgotten(request);
    const ended = this.ended.find((one) => one.lease === lease);
    if (ended) {
      const { revoked } = ended;
      this.outbox.push(
        revoked ? { to, signal: 'revoked', say: revoked } : { to, signal: 'refused', say: { lease } },
      );
      this.serve(now);
      return false;
    }
    const held = this.leases.get(lease);
    if (held) {
      if (holding === undefined) this.outbox.push({ to, signal: 'granted', say: { lease, node: held.node } });
      this.serve(now);
      return false;
    }
    const waiter = this.queue.find((one) => one.lease === lease);
    if (waiter) {
      // A later execution of the run may not know the last notice, so it is sent again.
      waiter.told = null;
      this.serve(now);
      return false;
    }
    if (holding !== undefined) {
      this.adopt(request, holding, now);
      return false;
    }
    this.queue.push({ ...request, since: now, told: null });
    this.serve(now);
    if (!this.queue.some((one) => one.lease === lease)) return false;
    if (request.atOnce !== true) return true;
    this.outbox = this.outbox.filter(({ signal, say }) => signal !== 'waiting' || say.lease !== lease);
    this.refuse(request);
    return false;
  }

  /**
   * Ends leases and requests that the run's current execution does not know: they belong to an execution that a reset has undone, and
   * nothing would ever release them. A delayed request of such an old execution ends the leases of its successor; the successor is notified
   * and asks under another name.
   */
  private endForgotten({ asker, workflowId, firstExecutionRunId }: LeaseRequest): void {
    if (!asker) return;
    const isForgotten = (one: Lease | Waiter): boolean => {
      const execution = 'asker' in one ? one.asker?.execution : (one as Lease).execution;
      const isTheirs = one.workflowId === workflowId && one.firstExecutionRunId === firstExecutionRunId;
      return isTheirs && execution !== asker.execution && !asker.knows.includes(one.lease);
    };
    for (const lease of [...this.leases.values()]) if (isForgotten(lease)) this.revoke(lease, 'released');
    for (const waiter of this.queue.filter(isForgotten)) this.refuse(waiter);
  }

  release({ lease }: { lease: string }, now: number): void {
    this.queue = this.queue.filter((one) => one.lease !== lease);
    this.leases.delete(lease);
    this.end(lease, null);
    this.serve(now);
  }

  /** Ends the lease; the node gets no other lease before its next report. */
  suspect({ lease, node }: GrantedLease, now: number): void {
    const held = this.leases.get(lease);
    if (held?.node !== node) return;
    this.revoke(held, 'lost');
    const suspected = this.nodes.get(node);
    if (suspected) suspected.suspected = true;
    this.serve(now);
  }

  /** The run has ended, or another run has its workflow id: removes its leases and requests without a notice (R30). */
  closed({ workflowId, firstExecutionRunId }: RunWorkflow, now: number): void {
    const isTheirs = (one: RunWorkflow): boolean =>
      one.workflowId === workflowId && one.firstExecutionRunId === firstExecutionRunId;
    this.queue = this.queue.filter((waiter) => !isTheirs(waiter));
    for (const lease of [...this.leases.values()]) if (isTheirs(lease)) this.leases.delete(lease.lease);
    this.serve(now);
  }

  /** Declares nodes lost that have been silent for too long; call when time has passed. */
  passed(now: number): void {
    for (const node of this.nodes.values()) {
      if (!node.lost && this.lostAt(node.lastSeen) <= now) {
        node.lost = true;
        this.revokeAllOn(node.id, 'lost');
      }
      if (node.lost && now - node.lastSeen >= forgetAfterMs) this.nodes.delete(node.id);
    }
    for (const lease of [...this.leases.values()])
      if (!this.nodes.has(lease.node) && this.lostAt(lease.since) <= now) this.revoke(lease, 'lost');
    this.serve(now);
  }

  /** The pool did not receive signals for a while: no silent node is declared lost before it had time to report again. */
  away(now: number): void {
    this.graceUntil = Math.max(this.graceUntil, now + poolTimes.nodeLostAfterMs);
  }

  /** When `passed` next has something to do, in milliseconds since the epoch; null if there is no node to watch. */
  get deadline(): number | null {
    const alive = [...this.nodes.values()].filter(({ lost }) => !lost).map(({ lastSeen }) => lastSeen);
    const unseen = [...this.leases.values()].filter(({ node }) => !this.nodes.has(node));
    const heard = [...alive, ...unseen.map(({ since }) => since)];
    return heard.length === 0 ? null : this.lostAt(Math.min(...heard));
  }

  get somebodyWaits(): boolean {
    return this.queue.length > 0;
  }

  /** The runs to check while a request waits: if a run is closed, its leases and requests end. */
  runs(): RunWorkflow[] {
    const all = [...this.leases.values(), ...this.queue].map(({ workflowId, firstExecutionRunId }) => ({
      workflowId,
      firstExecutionRunId,
    }));
    return [...new Map(all.map((run) => [`${run.workflowId}/${run.firstExecutionRunId}`, run])).values()];
  }

  /** Returns the messages to send, each only once. */
  messages(): PoolMessage[] {
    const messages = this.outbox;
    this.outbox = [];
    return messages;
  }

  view(): PoolView {
    return {
      nodes: byId([...this.nodes.values()], ({ id }) => id).map(({ lost, suspected: _, ...node }) => ({
        ...node,
        state: lost ? 'lost' : this.farewell(node.instance) ? 'draining' : 'up',
      })),
      leases: byId([...this.leases.values()], ({ lease }) => lease).map(
        ({ lease, run, project, node, since }) => ({ lease, run, project, node, since }),
      ),
      queue: this.inOrder().map((waiter) => {
        const { lease, run, project, priority, since } = waiter;
        return { lease, run, project, priority, since, why: this.why(waiter).why };
      }),
    };
  }

  /** Gives free nodes to the waiting requests in order, and notifies the remaining ones why they wait. */
  private serve(now: number): void {
    for (;;) {
      // Each grant may change the order of the remaining requests.
      const next = this.inOrder().find((waiter) => this.nodeFor(waiter) !== null);
      const node = next ? this.nodeFor(next) : null;
      if (!next || node === null) break;
      this.queue = this.queue.filter((waiter) => waiter !== next);
      this.grant(next, node, now);
      this.outbox.push({ to: next, signal: 'granted', say: { lease: next.lease, node } });
    }
    for (const waiter of this.queue) {
      const say = this.why(waiter);
      if (waiter.told?.why === say.why) continue;
      waiter.told = say;
      this.outbox.push({ to: waiter, signal: 'waiting', say });
    }
  }

  private grant(request: LeaseRequest, node: string, now: number): void {
    const { lease, run, project, numerics, workflowId, firstExecutionRunId } = request;
    const needed = {
      ...(request.served === undefined ? {} : { served: request.served }),
      ...(request.backend === undefined ? {} : { backend: request.backend }),
    };
    const granted = {
      ...{ lease, run, project, numerics, ...needed, workflowId, firstExecutionRunId },
      ...{ node, since: now },
    };
    const execution = request.asker?.execution;
    this.leases.set(lease, execution === undefined ? granted : { ...granted, execution });
  }

  /** Adds a lease that this table does not know: an earlier pool granted it and was lost. */
  private adopt(request: LeaseRequest, holding: string, now: number): void {
    const { lease } = request;
    const node = this.nodes.get(holding);
    const places = node?.places ?? 1;
    const isFree = this.leasesOn(holding).length < places;
    if (isFree && (!node || this.isUp(node))) {
      this.grant(request, holding, now);
      // If the run has released the lease in the meantime, it releases it again when it gets this grant.
      this.outbox.push({ to: request, signal: 'granted', say: { lease, node: holding } });
      return;
    }
    const revoked: RevokedLease = { lease, node: holding, reason: isFree ? 'lost' : 'released' };
    this.end(lease, revoked);
    this.outbox.push({ to: request, signal: 'revoked', say: revoked });
  }

  /** Waiting requests by priority, then by the fewest leases of their project, then of their run; the oldest first. */
  private inOrder(): Waiter[] {
    const held = [...this.leases.values()];
    const ranked = this.queue.map((waiter, arrival) => ({
      waiter,
      rank: [
        -waiter.priority,
        held.filter(({ project }) => project === waiter.project).length,
        held.filter(({ workflowId }) => workflowId === waiter.workflowId).length,
        arrival,
      ],
    }));
    return ranked.sort((a, b) => compare(a.rank, b.rank)).map(({ waiter }) => waiter);
  }

  private nodeFor(request: LeaseRequest): string | null {
    const free = this.within(request).filter(
      (node) =>
        mayFit(request, node.numerics) && !node.suspected && this.leasesOn(node.id).length < node.places,
    );
    // A node that has not reported its numerics yet ranks lower, because they may turn out not to fit.
    const rank = (node: PoolNode): number[] => [
      request.numerics && !node.numerics ? 1 : 0,
      // (It has the bits of the others, and is faster.)
      node.gpu ? 0 : 1,
      this.leasesOn(node.id).length / node.places,
    ];
    const [best] = byId(free, ({ id }) => id).sort((a, b) => compare(rank(a), rank(b)));
    return best?.id ?? null;
  }

  /** Living nodes that the request may use: a run's second lease must be on another node than its first. */
  private within({ besides, workflowId }: LeaseRequest): PoolNode[] {
    const own = [...this.leases.values()].filter((lease) => lease.workflowId === workflowId);
    const excluded = new Set([...besides, ...own.map(({ node }) => node)]);
    return [...this.nodes.values()].filter((node) => this.isUp(node) && !excluded.has(node.id));
  }

  private why(request: LeaseRequest): WaitingLease {
    const ids = (nodes: readonly PoolNode[]): string[] => nodes.map(({ id }) => id);
    const all = [...this.nodes.values()];
    const within = byId(this.within(request), ({ id }) => id).map((node) => ({
      ...node,
      holders: this.leasesOn(node.id).map(({ workflowId }) => workflowId),
    }));
    const alive = ids(all.filter((node) => this.isUp(node)));
    const draining = ids(all.filter((node) => !node.lost && !this.isUp(node)));
    return waitingReason(request, { within, alive, draining });
  }

  private revokeAllOn(node: string, reason: RevokedLease['reason']): void {
    for (const lease of this.leasesOn(node)) this.revoke(lease, reason);
  }

  private revoke(held: Lease, reason: RevokedLease['reason']): void {
    const { lease, node } = held;
    this.leases.delete(lease);
    const revoked = { lease, node, reason };
    this.end(lease, revoked);
    this.outbox.push({ to: held, signal: 'revoked', say: revoked });
  }

  private refuse(waiter: LeaseRequest): void {
    const { lease } = waiter;
    this.queue = this.queue.filter((one) => one.lease !== lease);
    this.end(lease, null);
    this.outbox.push({ to: waiter, signal: 'refused', say: { lease } });
  }

  private end(lease: string, revoked: RevokedLease | null): void {
    const others = this.ended.filter((one) => one.lease !== lease);
    this.ended = [...others, { lease, revoked }].slice(-remembered);
  }

  private remember(farewell: LeaseTableState['farewells'][number]): void {
    this.farewells = [...this.farewells, farewell].slice(-remembered);
  }

  private farewell(instance: string): LeaseTableState['farewells'][number] | undefined {
    return this.farewells.find((one) => one.instance === instance);
  }

  private leasesOn(node: string): Lease[] {
    return [...this.leases.values()].filter((lease) => lease.node === node);
  }

  private isUp({ lost, instance }: PoolNode): boolean {
    return !lost && this.farewell(instance) === undefined;
  }

  private lostAt(lastSeen: number): number {
    return Math.max(lastSeen + poolTimes.nodeLostAfterMs, this.graceUntil);
  }
}

function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : (a[at] ?? 0) - (b[at] ?? 0);
}

function byId<T>(all: readonly T[], id: (one: T) => string): T[] {
  return [...all].sort((a, b) => (id(a) < id(b) ? -1 : 1));
}
