// A node worker tells the pool that it is there, at once and then every few seconds, and that it leaves.
import type { Client } from '@temporalio/client';
import {
  defaultPoolId,
  nodeDownSignal,
  type NodeReport,
  nodeReportIntervalMs as intervalMs,
  nodeUpSignal,
  orchestratorQueue,
} from '../workflows/messages.js';
import type { nodePool } from '../workflows/node-pool.js';

export interface NodeReports {
  /** Stops reporting and takes the node out of the pool. */
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
          args: [[]],
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
  return {
    leave: async () => {
      clearInterval(timer);
      const { id, instance } = report();
      await client
        .withDeadline(Date.now() + 2_000, () =>
          client.workflow.getHandle(defaultPoolId).signal(nodeDownSignal, { id, instance }),
        )
        .catch(() => undefined);
    },
  };
}
