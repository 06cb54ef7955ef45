// The pool of nodes: who is there by their own reports, which run works where, and who waits. It hears signals and sends
// signals; what it decides is in lease-table.ts, and nothing that must last depends on it.
import {
  condition,
  getExternalWorkflowHandle,
  log,
  setHandler,
  type SignalDefinition,
  workflowInfo,
} from '@temporalio/workflow';
import { LeaseTable, type LeaseTableState, type PoolMessage } from './lease-table.js';
import {
  grantedSignal,
  nodeDownSignal,
  nodeDrainingSignal,
  nodeReportIntervalMs,
  nodeUpSignal,
  poolQuery,
  refusedSignal,
  releaseSignal,
  requestSignal,
  revokedSignal,
  suspectSignal,
  waitingSignal,
} from './messages.js';
import { beginAnew, newBuildWaits } from './new-beginning.js';
import { closedRunsPolicy } from './policies.js';
import { orchestrator } from './run-activities.js';

/** Of one execution; each writes a few events, and a workflow may receive 10,000. */
const signalsPerExecution = 1_000;
/** A timer that fires so late was not served: nor were the reports of nodes. */
const awayAfterMs = nodeReportIntervalMs / 2;
/** Between two questions whether the runs that hold nodes are open, while somebody waits (R30). */
const askEveryMs = 60_000;

/** Workflow id `nodes/default`. Whoever speaks to it first starts it: a node's report, or a run's request. */
export async function nodePool(carried?: LeaseTableState): Promise<void> {
  const pool = new Pool(new LeaseTable(carried));
  pool.listen();
  await pool.serve();
  await beginAnew<typeof nodePool>(pool.state());
}

class Pool {
  private signals = 0;
  /** The last message to each run's workflow: a second one waits for it, so that they arrive in their order. */
  private readonly told = new Map<string, Promise<void>>();
  private asking = false;
  /** Somebody waits who was not known to wait when the question was asked last. */
  private askAnew = false;

  constructor(private readonly table: LeaseTable) {}

  /** Call before the first await. */
  listen(): void {
    const { table } = this;
    setHandler(poolQuery, () => table.view(), {
      description: 'Nodes with what they offer, leases, and the queue',
    });
    this.on(nodeUpSignal, (report) => table.up(report, Date.now()));
    this.on(nodeDrainingSignal, (node) => table.draining(node, Date.now()));
    this.on(nodeDownSignal, (node) => table.down(node, Date.now()));
    this.on(requestSignal, (request) => {
      if (table.request(request, Date.now())) this.askAnew = true;
    });
    this.on(releaseSignal, (lease) => table.release(lease, Date.now()));
    this.on(suspectSignal, (lease) => table.suspect(lease, Date.now()));
  }

  /** Returns when it is time to continue as new: nothing is under way then, and what comes later the next execution hears. */
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
      if (Date.now() - deadline > awayAfterMs) this.table.away(Date.now());
      this.table.passed(Date.now());
      this.speak();
    }
    await condition(() => this.told.size === 0 && !this.asking);
  }

  state(): LeaseTableState {
    return this.table.state();
  }

  private due(): boolean {
    const due = workflowInfo().continueAsNewSuggested || newBuildWaits();
    return due || this.signals >= signalsPerExecution;
  }

  /** What nobody can read changes nothing: an error would fail the workflow's task, and with it the whole pool. */
  private on<T>(signal: SignalDefinition<[T]>, heard: (say: T) => void): void {
    setHandler(signal, (say) => {
      this.signals += 1;
      try {
        heard(say);
      } catch (error) {
        log.warn('A signal that cannot be read is passed over', {
          signal: signal.name,
          error: String(error),
        });
      }
      this.speak();
    });
  }

  private speak(): void {
    for (const message of this.table.messages()) {
      const { workflowId } = message.to;
      const before = this.told.get(workflowId) ?? Promise.resolve();
      const mine = before
        .then(() => this.send(message))
        .finally(() => {
          if (this.told.get(workflowId) === mine) this.told.delete(workflowId);
        });
      this.told.set(workflowId, mine);
    }
    if (this.table.somebodyWaits && !this.asking && !this.due()) void this.askWhoIsOpen();
  }

  private async send({ to, signal, say }: PoolMessage): Promise<void> {
    const run = getExternalWorkflowHandle(to.workflowId);
    try {
      if (signal === 'granted') await run.signal(grantedSignal, say);
      else if (signal === 'revoked') await run.signal(revokedSignal, say);
      else if (signal === 'waiting') await run.signal(waitingSignal, say);
      else await run.signal(refusedSignal, say);
    } catch (error) {
      log.info('A run is gone', { run: to.workflowId, error: String(error) });
      this.table.closed(to, Date.now());
      this.speak();
    }
  }

  /** Before anybody waits for a node, and each minute while somebody does (R30). */
  private async askWhoIsOpen(): Promise<void> {
    this.asking = true;
    try {
      while (this.table.somebodyWaits && !this.due()) {
        this.askAnew = false;
        const runs = this.table.runs();
        const summary = 'which of the runs that hold or await a node are over';
        const closed = await orchestrator('runs', summary, closedRunsPolicy)
          .closedRuns({ runs })
          .catch((error: unknown) => {
            log.warn('Whether runs are open is not known', { error: String(error) });
            return [];
          });
        for (const run of closed) this.table.closed(run, Date.now());
        this.speak();
        await condition(() => this.askAnew || !this.table.somebodyWaits || this.due(), askEveryMs);
      }
    } finally {
      this.asking = false;
    }
  }
}
