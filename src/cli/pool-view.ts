// What the pool knows of nodes, leases and waiting runs.
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import { defaultPoolId, poolQuery, type PoolView } from '../workflows/messages.js';

const queryDeadlineMs = 10_000;

/** Empty if no node has ever reported. */
export async function poolView(client: Client): Promise<PoolView> {
  try {
    return await client.withDeadline(Date.now() + queryDeadlineMs, () =>
      client.workflow.getHandle(defaultPoolId).query(poolQuery),
    );
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return { nodes: [], leases: [], queue: [] };
    throw error;
  }
}
