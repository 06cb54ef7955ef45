// Reports a node worker to the pool, at once and then every few seconds, and when it leaves.
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

/** Time limit of the last report. If it does not reach the pool, the pool notices the loss by the missing reports. */
const farewellMs = 1_000;

interface NodeReports {
  /** Ends the reports and tells the pool that this node takes no more work. */
  drain(): Promise<void>;
  /** Ends the reports and takes the node out of the pool. */
  leave(): Promise<void>;
}

/** Starts the reports. A failed report is not repeated, as Temporal may be restarting: the next one follows soon. */
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
      if (failing) log('the pool receives this node’s reports again');
      failing = false;
    } catch (error) {
      if (!failing) log(`the pool does not receive this node's reports: ${(error as Error).message}`);
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
        log(`the pool was not informed that this node is shutting down: ${(error as Error).message}`),
      );
  };
  return {
    drain: () => signalPool((pool, instance) => pool.signal(nodeDrainingSignal, instance)),
    leave: () => signalPool((pool, instance) => pool.signal(nodeDownSignal, instance)),
  };
}
