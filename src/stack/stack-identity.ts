// Which stack a Temporal server belongs to: the stack writes its name into the data of the server's default namespace, and keeps the
// same name in its folder. An address alone says nothing: another server may listen there by now.
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import type { Client, Connection } from '@temporalio/client';

export interface StackIdentity {
  id: string;
  /** Host and folder, for people. */
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

/** The stack that has named the server as its own; null if none has. Throws while the server does not answer. */
export async function stackOfServer(server: Server): Promise<StackIdentity | null> {
  const { namespaceInfo } = await server.withDeadline(Date.now() + answerWithinMs, () =>
    server.workflowService.describeNamespace({ namespace }),
  );
  const { [idKey]: id, [placeKey]: place } = namespaceInfo?.data ?? {};
  return id === undefined ? null : { id, place: place ?? 'an unknown place' };
}

/** Names the server as the stack's own. Only for a server that the stack has started: a server with a lost database forgets the name. */
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
