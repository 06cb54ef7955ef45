// A real Temporal dev server for a test file: one a file, on a free port, stopped by its id.
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import { freePort } from '../../../src/stack/free-port.js';
import { findTemporalBinary } from '../../../src/stack/temporal-binary.js';
import { openConnection } from '../../../src/workers/temporal/temporal-connection.js';
import { temporalServerArguments } from '../../../src/workers/temporal/temporal-server.js';

export interface TestTemporal {
  address: string;
  client: Client;
  /** For workers. */
  connection: NativeConnection;
  process: ChildProcess;
  /** At once, as a power cut does; connections are closed. */
  kill(): Promise<void>;
  stop(): Promise<void>;
}

export interface TestTemporalOptions {
  port?: number;
  /** Keeps workflows over a restart on the same port. */
  databaseFile?: string;
  dynamicConfig?: Record<string, string | number>;
}

export async function startTemporal(options: TestTemporalOptions = {}): Promise<TestTemporal> {
  quietWorkers();
  const port = options.port ?? (await freePort());
  const address = `127.0.0.1:${port}`;
  const server = spawnTemporal(port, options.databaseFile ?? null, options.dynamicConfig);
  const clientConnection = openConnection({ address });
  const client = new Client({ connection: clientConnection });
  await connected(() => client.workflowService.describeNamespace({ namespace: 'default' }), server);
  const connection = await NativeConnection.connect({ address });
  const endedBy = async (signal: NodeJS.Signals): Promise<void> => {
    if (signal === 'SIGKILL') await ended(server, signal);
    await connection.close().catch(() => undefined);
    await clientConnection.close();
    await ended(server, signal);
  };
  return {
    address,
    client,
    connection,
    process: server,
    kill: () => endedBy('SIGKILL'),
    stop: () => endedBy('SIGTERM'),
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

async function connected<T>(attempt: () => Promise<T>, server: ChildProcess): Promise<T> {
  const deadline = Date.now() + 20_000;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (server.exitCode !== null)
        throw new Error(`the Temporal server exited with ${server.exitCode}`, { cause: error });
      if (Date.now() > deadline) throw error;
      await delay(50);
    }
  }
}

let quiet = false;

/** Failures that a test provokes are not worth a page of log. */
function quietWorkers(): void {
  if (quiet) return;
  quiet = true;
  Runtime.install({
    logger: new DefaultLogger('ERROR', () => undefined),
    telemetryOptions: { logging: { filter: 'ERROR' } },
  });
}
