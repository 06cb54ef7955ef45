// A real S3 server (versitygw) for tests, on a free port of 127.0.0.1, with one bucket in a temporary folder.
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../../src/stack/free-port.js';
import { environmentWith } from '../environment-variables.js';
import { findVersitygw } from '../find-tools.js';

export interface S3Server {
  endpoint: string;
  bucket: string;
  /** Store address of a prefix in the bucket. `endpoint`: another way to the server, such as a proxy. */
  address(prefix: string, endpoint?: string): string;
  stop(): Promise<void>;
}

const credentials = { AWS_ACCESS_KEY_ID: 'test-access', AWS_SECRET_ACCESS_KEY: 'test-secret-key' };
const startMs = 15_000;

/** Number of running servers of this process. The credentials stay in the environment while there is one. */
let running = 0;
let removeCredentials = (): void => undefined;

/** With `createOnly: false` the server silently ignores `If-None-Match`, so it is unfit for records. */
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
        ROOT_ACCESS_KEY: credentials.AWS_ACCESS_KEY_ID,
        ROOT_SECRET_KEY: credentials.AWS_SECRET_ACCESS_KEY,
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
  const end = Date.now() + startMs;
  while (
    !(await fetch(`${endpoint}/health`).then(
      (reply) => reply.ok,
      () => false,
    ))
  ) {
    if (child.exitCode !== null || Date.now() > end) {
      await stop();
      throw new Error(`${program} did not answer on ${endpoint} within ${startMs} ms: ${log || 'no output'}`);
    }
    await sleep(30);
  }
  if (running === 0) removeCredentials = environmentWith(credentials);
  running += 1;
  return {
    endpoint,
    bucket,
    address: (prefix, through = endpoint) => `s3://${bucket}/${prefix}?endpoint=${through}&region=us-east-1`,
    stop: async () => {
      running -= 1;
      if (running === 0) removeCredentials();
      await stop();
    },
  };
}
