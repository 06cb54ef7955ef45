// Measures how soon the pool notices a lost node, for tests and the benchmark.
import type { Client } from '@temporalio/client';
import { until } from './until.js';
import { defaultPoolId, poolQuery } from '../../src/workflows/messages.js';

/** Seconds from the call until the pool has revoked all of the node's leases. */
export async function secondsUntilRevoked(client: Client, node: string): Promise<number> {
  const began = performance.now();
  await until(async () => {
    const { nodes, leases } = await client.workflow.getHandle(defaultPoolId).query(poolQuery);
    return (
      !leases.some((lease) => lease.node === node) &&
      !nodes.some(({ id, state }) => id === node && state === 'up')
    );
  }, `the pool to notice that ${node} is lost`);
  return (performance.now() - began) / 1000;
}

/** Waits until the node has reported and may be leased. */
export async function untilReported(client: Client, node: string): Promise<void> {
  await until(async () => {
    const { nodes } = await client.workflow.getHandle(defaultPoolId).query(poolQuery);
    return nodes.some(({ id, state }) => id === node && state === 'up');
  }, `${node} to report`);
}
