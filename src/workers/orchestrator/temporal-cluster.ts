// The orchestrator's own calls to Temporal: a cluster's identity, whether an owner's workflow is open, requests for a node.
import { Client, WorkflowNotFoundError } from '@temporalio/client';
import { IndexedValueType, searchAttributes } from '../temporal/temporal-server.js';
import { plainTemporalConfig, type TemporalConfig } from '../process/config.js';
import { connectClient } from '../temporal/temporal-connection.js';
import type { LeaseRequest, RunWorkflow } from '../../activities/contracts.js';
import type { OwnerRecord } from '../../spec/records/run-records.js';
import type { OwnerState } from '../../store/runs/owners.js';
import { defaultPoolId, orchestratorQueue, poolSummary, requestSignal } from '../../workflows/messages.js';
import type { nodePool } from '../../workflows/pool/node-pool.js';

const grpcAlreadyExists = 6;

export async function clusterId(client: Client): Promise<string> {
  const { clusterId: id } = await client.workflowService.getClusterInfo({});
  return id ?? '';
}

/**
 * The address of a server as owner records name it. A loopback address means a different server on each machine, so the machine's name is
 * added: `127.0.0.1:7233@host`.
 */
export function recordedAddress(address: string, host: string): string {
  return isLoopback(address) ? `${address}@${host}` : address;
}

/** Asks the server that the owner record names (R20); it may be a different server from ours. */
export async function ownerState(
  owner: OwnerRecord,
  own: TemporalConfig,
  client: Client,
  host: string,
): Promise<OwnerState> {
  // Compare the clusters' ids, too: a cluster may have several addresses, and a machine may have been renamed.
  const isOwn =
    owner.address === recordedAddress(own.address, host) ||
    (owner.clusterId !== '' && owner.clusterId === (await clusterId(client)));
  if (isOwn) {
    const { connection } = client;
    return workflowState(new Client({ connection, namespace: owner.namespace }), owner);
  }
  const [address = '', ownersHost] = owner.address.split('@');
  if (ownersHost !== undefined && ownersHost !== host) return 'unreachable';
  let connected;
  try {
    // A record names the server, and its writer must not receive our keys: ask another server without them.
    connected = await connectClient(plainTemporalConfig(address, owner.namespace), 3_000);
  } catch {
    return 'unreachable';
  }
  try {
    return await workflowState(connected.client, owner);
  } finally {
    await connected.close();
  }
}

function isLoopback(address: string): boolean {
  const host = address.slice(0, address.lastIndexOf(':'));
  return /^(localhost|127\.[\d.]+|0\.0\.0\.0|\[::1?\]|::1?)$/.test(host);
}

async function workflowState(client: Client, owner: RunWorkflow): Promise<OwnerState> {
  try {
    // Without a run id Temporal describes the newest execution: continue-as-new closes the earlier ones.
    const { status, raw } = await client.workflow.getHandle(owner.workflowId).describe();
    const firstRunId = raw.workflowExecutionInfo?.firstRunId;
    if (firstRunId && firstRunId !== owner.firstExecutionRunId) return 'closed';
    return status.name === 'RUNNING' || status.name === 'PAUSED' ? 'open' : 'closed';
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return 'unknown';
    return 'unreachable';
  }
}

/** Sends a run's request to the pool. */
export async function requestLease(client: Client, request: LeaseRequest): Promise<void> {
  await client.workflow.signalWithStart<typeof nodePool, [LeaseRequest]>('nodePool', {
    workflowId: defaultPoolId,
    taskQueue: orchestratorQueue,
    args: [],
    staticSummary: poolSummary,
    signal: requestSignal,
    signalArgs: [request],
  });
}

/** True if the run's workflow is closed or unknown; false also if its server does not answer. */
export async function isOver(client: Client, run: RunWorkflow): Promise<boolean> {
  const state = await workflowState(client, run);
  return state === 'closed' || state === 'unknown';
}

/** Registers the search attributes: a run that sets an unregistered one would fail its workflow tasks for ever. May be called again. */
export async function registerSearchAttributes(client: Client): Promise<void> {
  const { namespace } = client.options;
  const { connection } = client;
  const known = await connection.operatorService.listSearchAttributes({ namespace });
  const missing = Object.entries(searchAttributes).filter(
    ([name]) => !(name in (known.customAttributes ?? {})),
  );
  if (missing.length === 0) return;
  try {
    await connection.operatorService.addSearchAttributes({
      namespace,
      searchAttributes: Object.fromEntries(missing.map(([name, type]) => [name, IndexedValueType[type]])),
    });
  } catch (error) {
    if ((error as { code?: number }).code !== grpcAlreadyExists) throw error;
  }
}
