// A real S3 server (versitygw) for tests, on a free port of 127.0.0.1, with one bucket in a temporary folder.
import { spawn } from 'node:child_process';
import { accessSync, constants, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export interface S3Server {
  endpoint: string;
  bucket: string;
  /** Address of a prefix in the bucket, through `endpoint` or another way to it. */
  address(prefix: string, endpoint?: string): string;
  stop(): Promise<void>;
}

const CREDENTIALS = { AWS_ACCESS_KEY_ID: 'test-access', AWS_SECRET_ACCESS_KEY: 'test-secret-key' };
const START_MS = 15_000;

/** `createOnly: false` gives a server that silently ignores `If-None-Match`: unfit for records. */
export async function startS3Server(options: { createOnly?: boolean } = {}): Promise<S3Server> {
  const program = findVersitygw();
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-s3-'));
  const bucket = 'longhaul-test';
  await mkdir(join(folder, bucket));
  const port = await freePort();
  const endpoint = `http://127.0.0.1:${port}`;
  const backend = options.createOnly === false ? ['posix', '--nometa', folder] : ['posix', folder];
  const child = spawn(
    program,
    ['--port', `127.0.0.1:${port}`, '--quiet', '--health', '/health', ...backend],
    {
      env: {
        PATH: process.env.PATH,
        ROOT_ACCESS_KEY: CREDENTIALS.AWS_ACCESS_KEY_ID,
        ROOT_SECRET_KEY: CREDENTIALS.AWS_SECRET_ACCESS_KEY,
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  );
  let log = '';
  child.stderr.on('data', (piece: Buffer) => (log += piece.toString()));
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const stop = async () => {
    child.kill('SIGKILL');
    await exited;
    await rm(folder, { recursive: true, force: true });
  };
  const end = Date.now() + START_MS;
  while (
    !(await fetch(`${endpoint}/health`).then(
      (reply) => reply.ok,
      () => false,
    ))
  ) {
    if (child.exitCode !== null || Date.now() > end) {
      await stop();
      throw new Error(
        `${program} did not answer on ${endpoint} within ${START_MS} ms: ${log || 'no output'}`,
      );
    }
    await sleep(30);
  }
  Object.assign(process.env, CREDENTIALS);
  return {
    endpoint,
    bucket,
    address: (prefix, through = endpoint) => `s3://${bucket}/${prefix}?endpoint=${through}&region=us-east-1`,
    stop,
  };
}

/** From LONGHAUL_VERSITYGW, the PATH, or the cache that `npm test` fills. */
export function findVersitygw(): string {
  const named = process.env.LONGHAUL_VERSITYGW;
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'longhaul', 'tools');
  const candidates = [
    ...(named ? [named] : []),
    ...(process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, 'versitygw')),
    ...foldersOf(cache).map((folder) => join(cache, folder, 'versitygw')),
  ];
  const found = candidates.find(isProgram);
  if (!found)
    throw new Error(
      `no versitygw in LONGHAUL_VERSITYGW, the PATH or ${cache}: run \`npm test\`, which builds it`,
    );
  return found;
}

function foldersOf(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => name.startsWith('versitygw-'))
      .sort()
      .reverse();
  } catch {
    return [];
  }
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('no free port on 127.0.0.1');
  return address.port;
}
