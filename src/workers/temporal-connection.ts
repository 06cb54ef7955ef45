// Connections that wait for a server that is still starting, and say what to do when it never answers.
import { setTimeout as delay } from 'node:timers/promises';
import { Client, Connection } from '@temporalio/client';
import { NativeConnection } from '@temporalio/worker';
import type { TemporalConfig } from './config.js';

export interface TemporalClient {
  client: Client;
  close(): Promise<void>;
}

export class TemporalUnreachable extends Error {
  constructor(address: string, seconds: number, cause: unknown) {
    super(
      `no Temporal server answers at ${address} (tried for ${seconds} s). Start one with \`longhaul up\`, ` +
        'or name another one with TEMPORAL_ADDRESS or a profile in temporal.toml',
      { cause },
    );
    this.name = 'TemporalUnreachable';
  }
}

export async function connectClient(temporal: TemporalConfig, deadlineMs = 5_000): Promise<TemporalClient> {
  const connection = await untilDeadline(temporal, deadlineMs, () => Connection.connect(temporal.options));
  return {
    client: new Client({ connection, namespace: temporal.namespace }),
    close: () => closeAfterRetries(connection),
  };
}

/** Longer than all retries of one call together. */
const retriesEndWithinMs = 60_000;

/**
 * The SDK's retry of a call that met a dead server runs from a timer, and throws there, out of anybody's reach, when its
 * channel was shut down meanwhile. So the channel stays until no retry can be left; it keeps no process alive.
 */
export function closeAfterRetries(connection: Connection): Promise<void> {
  setTimeout(() => void connection.close().catch(() => undefined), retriesEndWithinMs).unref();
  return Promise.resolve();
}

export function connectWorker(temporal: TemporalConfig, deadlineMs = 60_000): Promise<NativeConnection> {
  return untilDeadline(temporal, deadlineMs, () => NativeConnection.connect(temporal.options));
}

async function untilDeadline<T>(
  temporal: TemporalConfig,
  deadlineMs: number,
  attempt: () => Promise<T>,
): Promise<T> {
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (Date.now() >= deadline)
        throw new TemporalUnreachable(temporal.address, Math.round(deadlineMs / 1000), error);
      await delay(200);
    }
  }
}
