// A real Temporal dev server on a free port, and connections to a server. A test stops the server by its pid. Most tests share one server
// (shared-temporal.ts). A test needs its own server if it stops the server, sets its limits, or uses the queues and the pool that real
// processes use.
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import { freePort } from '../../../src/stack/free-port.js';
import { findTemporalBinary } from '../../../src/stack/temporal-binary.js';
import { openConnection } from '../../../src/workers/temporal/temporal-connection.js';
import { temporalServerArguments } from '../../../src/workers/temporal/temporal-server.js';

export interface ConnectedTemporal {
  address: string;
  client: Client;
  /** The connection for workers. */
  connection: NativeConnection;
  /** Closes the connections. */
  stop(): Promise<void>;
}

export interface TestTemporal extends ConnectedTemporal {
  process: ChildProcess;
  /** Kills the server at once, like a power cut, and closes the connections. */
  kill(): Promise<void>;
  /** Closes the connections and stops the server. */
  stop(): Promise<void>;
}

export interface TestTemporalOptions {
  port?: number;
  /** Keeps workflows over a restart on the same port. */
  databaseFile?: string;
  dynamicConfig?: Record<string, string | number>;
}

export async function startTemporal(options: TestTemporalOptions = {}): Promise<TestTemporal> {
  const port = options.port ?? (await freePort());
  const server = spawnTemporal(port, options.databaseFile ?? null, options.dynamicConfig);
  const connected = await connectTemporal(`127.0.0.1:${port}`, server);
  const endedBy = async (signal: NodeJS.Signals): Promise<void> => {
    if (signal === 'SIGKILL') await ended(server, signal);
    await connected.stop();
    await ended(server, signal);
  };
  return {
    ...connected,
    process: server,
    kill: () => endedBy('SIGKILL'),
    stop: () => endedBy('SIGTERM'),
  };
}

/** Waits until the server answers. `server`: its process; if it ends, the wait fails. */
export async function connectTemporal(address: string, server?: ChildProcess): Promise<ConnectedTemporal> {
  quietWorkers();
  const clientConnection = openConnection({ address });
  const client = new Client({ connection: clientConnection });
  await answering(() => client.workflowService.describeNamespace({ namespace: 'default' }), server);
  const connection = await NativeConnection.connect({ address });
  return {
    address,
    client,
    connection,
    stop: async () => {
      await connection.close().catch(() => undefined);
      await clientConnection.close();
    },
  };
}

export function spawnTemporal(
  port: number,
  databaseFile: string | null,
  dynamicConfig: Record<string, string | number> = {},
): ChildProcess {
  const more = Object.entries(dynamicConfig).flatMap(([key, value]) => [
    '--dynamic-config-value',
    `${key}=${value}`,
  ]);
  const args = [...temporalServerArguments({ port, uiPort: null, databaseFile }), ...more];
  return spawn(findTemporalBinary(), args, { stdio: 'ignore' });
}

export async function ended(child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill(signal);
  const killer = setTimeout(() => child.kill('SIGKILL'), 5_000);
  await exit;
  clearTimeout(killer);
}

async function answering<T>(attempt: () => Promise<T>, server: ChildProcess | undefined): Promise<T> {
  const deadline = Date.now() + 20_000;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (server && server.exitCode !== null)
        throw new Error(`the Temporal server exited with ${server.exitCode}`, { cause: error });
      if (Date.now() > deadline) throw error;
      await delay(50);
    }
  }
}

let quiet = false;

/** Hides log lines about failures that a test causes on purpose. */
function quietWorkers(): void {
  if (quiet) return;
  quiet = true;
  Runtime.install({
    logger: new DefaultLogger('ERROR', () => undefined),
    telemetryOptions: { logging: { filter: 'ERROR' } },
  });
}
