// The leases of one run, as the pool grants and revokes them. The run gives each lease a unique name, so that it recognizes messages that
// come twice, late, or to a later execution.
import {
  CancellationScope,
  getExternalWorkflowHandle,
  log,
  type SignalDefinition,
  Trigger,
  uuid4,
  workflowInfo,
} from '@temporalio/workflow';
import type { PlacementSpec } from '../../spec/run-spec.js';
import { grantedLease, hear, leaseName, revokedLease, waitingLease } from './signal-checks.js';
import {
  defaultPoolId,
  type GrantedLease,
  grantedSignal,
  refusedSignal,
  releaseSignal,
  type RevokedLease,
  revokedSignal,
  suspectSignal,
  type WaitingLease,
  waitingSignal,
} from '../messages.js';
import { orchestratorPolicy, placing } from '../policies.js';
import { orchestrator } from '../run-activities.js';

export interface HeldLease extends GrantedLease {
  /** Resolves when the lease has ended, whether the run or the pool ended it. */
  ended: Trigger<void>;
}

export interface AskedLease {
  lease: string;
  besides: string[];
  atOnce: boolean;
  waiting: WaitingLease | null;
  /** The time since which no node is known to be alive, in milliseconds since the epoch; null if a node is alive. */
  noneSince: number | null;
  refused: boolean;
  /** The activity that sends the request now; null if no activity does. */
  asking: Promise<void> | null;
  /**
   * When to send the request again, in milliseconds since the epoch; 0 if the pool has not been asked or has not answered under this name.
   * A pool that was lost and restarted does not know the request, so it is repeated.
   */
  askAgainAt: number;
  askAgainMs: number;
}

export interface LeaseHolder {
  run: string;
  project: string;
  placement: PlacementSpec;
  /** The run that fixes the node's numerics; absent if the holder is itself a run. */
  numericsOf?: string;
}

/** The leases' state, carried over continue-as-new. */
export interface CarriedLeases {
  named: number;
  held: GrantedLease[];
  asked: string[];
  shunned: string[];
}

export class RunLeases {
  /** Updates and evaluations use the first lease. */
  held: HeldLease[];
  private readonly asked: Map<string, AskedLease>;
  private named: number;
  /** Nodes whose results differ from a record: they get no share of a step. */
  private readonly shunned: string[];
  /** Number of messages to the pool that are being sent. */
  sending = 0;

  /** `changed` is called whenever there is something new to show, `gone` for each held lease that the pool ends. */
  constructor(
    private readonly holder: LeaseHolder,
    carried: CarriedLeases | undefined,
    private readonly changed: () => void,
    private readonly gone: (revoked: RevokedLease) => void = () => undefined,
  ) {
    this.named = carried?.named ?? 0;
    this.held = (carried?.held ?? []).map((granted) => this.heldLease(granted));
    this.shunned = [...(carried?.shunned ?? [])];
    this.asked = new Map(
      (carried?.asked ?? []).map((lease) => [lease, askedLease(lease, this.shunned, false)]),
    );
  }

  /** Receives the pool's messages from now on. Earlier ones are delivered at once, so both callbacks must be ready before this call. */
  listen(): void {
    hear(grantedSignal, grantedLease, (granted) => this.granted(granted));
    hear(revokedSignal, revokedLease, (revoked) => {
      const { lease, reason } = revoked;
      if (!this.drop(lease)) return this.refused(lease);
      log.warn('A node is taken from the run', { lease, reason });
      this.gone(revoked);
    });
    hear(waitingSignal, waitingLease, (waiting) => {
      const asked = this.asked.get(waiting.lease);
      if (!asked) return;
      asked.waiting = waiting;
      asked.noneSince = waiting.cause === 'none' ? (asked.noneSince ?? Date.now()) : null;
      this.changed();
    });
    hear(refusedSignal, leaseName, ({ lease }) => {
      if (!this.drop(lease)) this.refused(lease);
    });
    for (const { lease, node } of this.held) this.reportInUse(lease, node);
  }

  /** Makes a request under a new name; `request` sends it. */
  ask(besides: string[] = [], atOnce = false): AskedLease {
    const asked = askedLease(this.newName(), besides, atOnce);
    this.asked.set(asked.lease, asked);
    return asked;
  }

  async request(asked: AskedLease, summary: string): Promise<void> {
    const isHeld = this.held.some(({ lease }) => lease === asked.lease);
    // The lease was granted and revoked before the caller looked, or was released with all others.
    if (!isHeld && !this.asked.has(asked.lease)) this.rename(asked);
    const { lease } = asked;
    // The activity's id is in use until the request ends.
    asked.asking ??= this.send(asked, summary).finally(() => {
      asked.asking = null;
      if (!this.asked.has(lease)) return;
      asked.askAgainAt = Date.now() + asked.askAgainMs;
      asked.askAgainMs = Math.min(asked.askAgainMs * placing.backoff, placing.longestAskAgainMs);
    });
    await asked.asking;
  }

  /** Asks for the run's nodes beyond the first, and repeats these requests from time to time, without waiting for an answer. */
  askForMore(): void {
    while (this.held.length + this.asked.size < this.holder.placement.nodes) this.ask(this.shunned);
    const due = [...this.asked.values()].filter(({ askAgainAt }) => askAgainAt <= Date.now());
    due.forEach((asked, index) => {
      const summary = `find node ${this.held.length + index + 1} to share the steps`;
      this.request(asked, summary).catch(() => undefined);
    });
  }

  /** Releases a lease, or takes back a request that is no longer needed. */
  release({ lease }: { lease: string }): void {
    this.asked.delete(lease);
    this.drop(lease);
    this.signalPool(releaseSignal, { lease });
  }

  releaseAll(): void {
    for (const lease of [...this.held, ...this.asked.values()]) this.release(lease);
  }

  /** From now on, the run does not ask for this node to share its steps. */
  shun(held: HeldLease): void {
    this.shunned.push(held.node);
    this.release(held);
  }

  /** Reports to the pool that work on the node timed out. */
  suspect({ lease, node }: GrantedLease): void {
    if (!this.drop(lease)) return;
    this.gone({ lease, node, reason: 'lost' });
    this.signalPool(suspectSignal, { lease, node });
  }

  /** Updates and evaluations use this lease from now on. */
  prefer({ lease }: GrantedLease): void {
    const rank = (held: HeldLease): number => (held.lease === lease ? 0 : 1);
    this.held.sort((a, b) => rank(a) - rank(b));
    this.changed();
  }

  carried(): CarriedLeases {
    const held = this.held.map(({ lease, node }) => ({ lease, node }));
    return { named: this.named, held, asked: [...this.asked.keys()], shunned: this.shunned };
  }

  private async send({ lease, besides, atOnce }: AskedLease, summary: string): Promise<void> {
    const id = atOnce ? 'place/elsewhere' : placeId(lease);
    await orchestrator(id, summary, orchestratorPolicy).requestLease({
      ...this.identity(lease),
      besides,
      ...(atOnce ? { atOnce } : {}),
    });
  }

  private granted({ lease, node }: GrantedLease): void {
    if (this.held.some((held) => held.lease === lease)) return;
    const asked = this.asked.get(lease);
    // A lease that the run no longer wants would keep others from the node.
    if (!asked) return this.signalPool(releaseSignal, { lease });
    this.asked.delete(lease);
    // If the lease is revoked at once, the run asks again under another name.
    asked.askAgainAt = 0;
    this.held.push(this.heldLease({ lease, node }));
    this.changed();
  }

  private refused(lease: string): void {
    const asked = this.asked.get(lease);
    if (!asked) return;
    this.asked.delete(lease);
    if (asked.atOnce) asked.refused = true;
    else this.rename(asked);
  }

  /** Gives the request a new name: the pool grants nothing under a name that has ended. */
  private rename(asked: AskedLease): void {
    const { firstAskAgainMs: askAgainMs } = placing;
    Object.assign(asked, { lease: this.newName(), waiting: null, askAgainAt: 0, askAgainMs });
    this.asked.set(asked.lease, asked);
    this.changed();
  }

  private newName(): string {
    // After a reset to an earlier point the request also needs a new name: the pool may have ended the old one.
    const unique = uuid4().slice(0, 8);
    return `${this.holder.run}/${unique}/${++this.named}`;
  }

  private heldLease({ lease, node }: GrantedLease): HeldLease {
    return { lease, node, ended: new Trigger() };
  }

  private drop(lease: string): boolean {
    const held = this.held.find((one) => one.lease === lease);
    if (!held) return false;
    this.held = this.held.filter((one) => one !== held);
    held.ended.resolve();
    this.changed();
    return true;
  }

  /** Reports a held lease to the pool, which does not know it if it was lost and restarted. */
  private reportInUse(lease: string, node: string): void {
    orchestrator(placeId(lease), `tell the pool that ${node} is in use`, orchestratorPolicy)
      .requestLease({ ...this.identity(lease), besides: [], holding: node })
      .catch(() => undefined);
  }

  private identity(lease: string) {
    const { workflowId, firstExecutionRunId, runId } = workflowInfo();
    const { run, project, placement, numericsOf } = this.holder;
    const knows = [...this.held.map((held) => held.lease), ...this.asked.keys()];
    const asker = { execution: runId, knows };
    return {
      ...{ lease, run, project, priority: placement.priority, workflowId, firstExecutionRunId, asker },
      ...(numericsOf === undefined ? {} : { numericsOf }),
    };
  }

  /** A failed message is only logged: if the pool is missing, it holds no leases. */
  private signalPool<T>(signal: SignalDefinition<[T]>, say: T): void {
    this.sending += 1;
    CancellationScope.nonCancellable(() => getExternalWorkflowHandle(defaultPoolId).signal(signal, say))
      .catch((error: unknown) => log.info('There is no pool of nodes', { error: String(error) }))
      .finally(() => (this.sending -= 1));
  }
}

/** True if the request has not been sent under its current name. */
export function isToBeAsked({ askAgainAt }: AskedLease): boolean {
  return askAgainAt === 0;
}

/** Id of the activity that sends the lease's messages to the pool. */
function placeId(lease: string): string {
  return `place/${lease.split('/').at(-1) ?? ''}`;
}

function askedLease(lease: string, besides: string[], atOnce: boolean): AskedLease {
  return {
    ...{ lease, besides, atOnce, waiting: null, noneSince: Date.now(), refused: false },
    ...{ asking: null, askAgainAt: 0, askAgainMs: placing.firstAskAgainMs },
  };
}
