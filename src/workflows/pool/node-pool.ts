// The pool of nodes: which nodes are alive, which run works where, and which requests wait. It receives and sends signals; `lease-table.ts`
// makes its decisions. Nothing that must last depends on the pool.
import {
  condition,
  getExternalWorkflowHandle,
  log,
  setCurrentDetails,
  setHandler,
  type SignalDefinition,
  workflowInfo,
} from '@temporalio/workflow';
import {
  grantedLease,
  hear,
  leaseName,
  leaseRequest,
  nodeInstance,
  nodeReport,
  type Shape,
} from './signal-checks.js';
import { LeaseTable, type LeaseTableState, type PoolMessage } from './lease-table.js';
import {
  nodeDownSignal,
  nodeDrainingSignal,
  nodeUpSignal,
  poolQuery,
  releaseSignal,
  requestSignal,
  suspectSignal,
} from '../messages.js';
import { continueOnCurrentBuild, newBuildWaits } from '../continue-as-new.js';
import { poolDetails } from './pool-details.js';
import { closedRunsPolicy, poolTimes } from '../policies.js';
import { orchestrator } from '../run-activities.js';

/** Workflow id `nodes/default`. The first signal starts it: a node's report or a run's request. */
export async function nodePool(carried?: LeaseTableState): Promise<void> {
  const pool = new Pool(new LeaseTable(carried));
  pool.listen();
  await pool.serve();
  await continueOnCurrentBuild<typeof nodePool>(pool.state());
}

class Pool {
  /** The last message to each run's workflow: the next one waits for it, so that messages arrive in order. */
  private readonly notified = new Map<string, Promise<void>>();
  private asking = false;
  /** True if a request waits that did not wait at the last check. */
  private askAgain = false;

  constructor(private readonly table: LeaseTable) {}

  /** Registers the signal handlers; call before the first await. */
  listen(): void {
    const { table } = this;
    setHandler(poolQuery, () => table.view(), {
      description: 'The nodes and what they offer, the leases, and the queue',
    });
    this.on(nodeUpSignal, nodeReport, (report) => table.up(report, Date.now()));
    this.on(nodeDrainingSignal, nodeInstance, (node) => table.draining(node, Date.now()));
    this.on(nodeDownSignal, nodeInstance, (node) => table.down(node, Date.now()));
    this.on(requestSignal, leaseRequest, (request) => {
      if (table.request(request, Date.now())) this.askAgain = true;
    });
    this.on(releaseSignal, leaseName, (lease) => table.release(lease, Date.now()));
    this.on(suspectSignal, grantedLease, (lease) => table.suspect(lease, Date.now()));
  }

  /** Returns when it is time to continue as new. Nothing is in flight then, and later messages reach the next execution. */
  async serve(): Promise<void> {
    this.speak();
    while (!this.due()) {
      const { deadline } = this.table;
      if (deadline === null) {
        await condition(() => this.due() || this.table.deadline !== null);
        continue;
      }
      const left = deadline - Date.now();
      if (left > 0) await condition(() => this.due(), left);
      if (Date.now() < deadline) continue;
      if (Date.now() - deadline > poolTimes.awayAfterMs) this.table.away(Date.now());
      this.table.passed(Date.now());
      this.speak();
    }
    await condition(() => this.notified.size === 0 && !this.asking);
  }

  state(): LeaseTableState {
    return this.table.state();
  }

  private due(): boolean {
    return workflowInfo().continueAsNewSuggested || newBuildWaits();
  }

  private on<T>(signal: SignalDefinition<[T]>, shape: Shape<T>, heard: (say: T) => void): void {
    hear(signal, shape, (say) => {
      heard(say);
      this.speak();
    });
  }

  private speak(): void {
    setCurrentDetails(poolDetails(this.table.view()));
    for (const message of this.table.messages()) {
      const { workflowId } = message.to;
      const before = this.notified.get(workflowId) ?? Promise.resolve();
      const mine = before
        .then(() => this.send(message))
        .finally(() => {
          if (this.notified.get(workflowId) === mine) this.notified.delete(workflowId);
        });
      this.notified.set(workflowId, mine);
    }
    if (this.table.somebodyWaits && !this.asking && !this.due()) void this.askWhoIsOpen();
  }

  private async send({ to, signal, say }: PoolMessage): Promise<void> {
    const run = getExternalWorkflowHandle(to.workflowId);
    try {
      await run.signal(signal, say);
    } catch (error) {
      log.info('A run is gone', { run: to.workflowId, error: String(error) });
      this.table.closed(to, Date.now());
      this.speak();
    }
  }

  /** Checks which runs are open: before a request waits for a node, and each minute while a request waits (R30). */
  private async askWhoIsOpen(): Promise<void> {
    this.asking = true;
    try {
      while (this.table.somebodyWaits && !this.due()) {
        this.askAgain = false;
        const runs = this.table.runs();
        const summary = 'find the runs that have ended, among those that hold a node or wait for one';
        const closed = await orchestrator('runs', summary, closedRunsPolicy)
          .closedRuns({ runs })
          .catch((error: unknown) => {
            log.warn('Could not check which runs are open', { error: String(error) });
            return [];
          });
        for (const run of closed) this.table.closed(run, Date.now());
        this.speak();
        await condition(() => this.askAgain || !this.table.somebodyWaits || this.due(), poolTimes.askEveryMs);
      }
    } finally {
      this.asking = false;
    }
  }
}
