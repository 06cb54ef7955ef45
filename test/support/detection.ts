// How soon the pool notices that a node is lost: what tests and the benchmark measure.
import type { Client } from '@temporalio/client';
import { until } from './until.js';
import { defaultPoolId, poolQuery } from '../../src/workflows/messages.js';

/** Seconds from the call to the moment when the pool has taken all of the node's leases from it. */
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

/** The node has reported, and may be given runs. */
export async function untilReported(client: Client, node: string): Promise<void> {
  await until(async () => {
    const { nodes } = await client.workflow.getHandle(defaultPoolId).query(poolQuery);
    return nodes.some(({ id, state }) => id === node && state === 'up');
  }, `${node} to report`);
}
