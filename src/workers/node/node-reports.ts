// A node worker reports to the pool, at once and then every few seconds, and says when it leaves.
import type { Client, WorkflowHandle } from '@temporalio/client';
import {
  defaultPoolId,
  nodeDownSignal,
  nodeDrainingSignal,
  type NodeInstance,
  type NodeReport,
  nodeReportIntervalMs as intervalMs,
  nodeUpSignal,
  orchestratorQueue,
  poolSummary,
} from '../../workflows/messages.js';
import type { nodePool } from '../../workflows/pool/node-pool.js';

/** A pool that cannot be reached notices the loss from missing reports. */
const farewellMs = 1_000;

export interface NodeReports {
  /** Ends the reports: this node leaves, and takes no more work. */
  drain(): Promise<void>;
  /** Ends the reports and takes the node out of the pool. */
  leave(): Promise<void>;
}

/** A report that fails is left to the next one: Temporal may be restarting. */
export function reportNode(
  client: Client,
  report: () => NodeReport,
  log: (message: string) => void,
): NodeReports {
  let failing = false;
  const send = async (): Promise<void> => {
    try {
      await client.withDeadline(Date.now() + intervalMs, () =>
        client.workflow.signalWithStart<typeof nodePool, [NodeReport]>('nodePool', {
          workflowId: defaultPoolId,
          taskQueue: orchestratorQueue,
          args: [],
          staticSummary: poolSummary,
          signal: nodeUpSignal,
          signalArgs: [report()],
        }),
      );
      if (failing) log('the pool hears of this node again');
      failing = false;
    } catch (error) {
      if (!failing) log(`the pool does not hear of this node: ${(error as Error).message}`);
      failing = true;
    }
  };
  void send();
  const timer = setInterval(() => void send(), intervalMs);
  const signalPool = (
    signal: (pool: WorkflowHandle, instance: NodeInstance) => Promise<void>,
  ): Promise<void> => {
    clearInterval(timer);
    const { id, instance } = report();
    const pool = client.workflow.getHandle(defaultPoolId);
    return client
      .withDeadline(Date.now() + farewellMs, () => signal(pool, { id, instance }))
      .catch((error: unknown) =>
        log(`the pool does not hear that this node leaves: ${(error as Error).message}`),
      );
  };
  return {
    drain: () => signalPool((pool, instance) => pool.signal(nodeDrainingSignal, instance)),
    leave: () => signalPool((pool, instance) => pool.signal(nodeDownSignal, instance)),
  };
}
