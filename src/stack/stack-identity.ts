// Shows to which stack a Temporal server belongs. The stack writes its name into the server's default namespace and into its own folder. An
// address is not enough: another server may listen there now.
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import type { Client, Connection } from '@temporalio/client';

export interface StackIdentity {
  id: string;
  /** Host and folder of the stack, for people. */
  place: string;
}

type Server = Pick<Client | Connection, 'withDeadline' | 'workflowService'>;

const idKey = 'longhaul_stack';
const placeKey = 'longhaul_stack_place';
const namespace = 'default';
const answerWithinMs = 5_000;

export function newStackId(): string {
  return randomBytes(16).toString('hex');
}

export function stackIdentity(id: string, folder: string): StackIdentity {
  return { id, place: `${hostname()}:${folder}` };
}

/** The stack whose name the server holds; null if it holds none. Throws if the server does not answer. */
export async function stackOfServer(server: Server): Promise<StackIdentity | null> {
  const { namespaceInfo } = await server.withDeadline(Date.now() + answerWithinMs, () =>
    server.workflowService.describeNamespace({ namespace }),
  );
  const { [idKey]: id, [placeKey]: place } = namespaceInfo?.data ?? {};
  return id === undefined ? null : { id, place: place ?? 'an unknown place' };
}

/** Writes the stack's name into the server. Call it at each start: a server that lost its database has forgotten the name. */
export async function nameServer(server: Server, { id, place }: StackIdentity): Promise<void> {
  const named = await stackOfServer(server);
  if (named?.id === id && named.place === place) return;
  await server.withDeadline(Date.now() + answerWithinMs, () =>
    server.workflowService.updateNamespace({
      namespace,
      updateInfo: { data: { [idKey]: id, [placeKey]: place } },
    }),
  );
}
