// The Python package's server with our fixture environment, as a process on a free port.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { freePort } from '../../src/workers/free-port.js';

export interface OpenEnvFixture {
  url: string;
  child: ChildProcess;
  stop(): Promise<void>;
}

export async function startOpenEnvFixture(python: string, maxSessions: number): Promise<OpenEnvFixture> {
  const port = await freePort();
  const script = fileURLToPath(new URL('../environments/openenv/fixture_env.py', import.meta.url));
  const child = spawn(python, [script, String(port), String(maxSessions)], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const url = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + 60_000;
  for (;;) {
    if (child.exitCode !== null)
      throw new Error(`the fixture server exited with ${child.exitCode}: ${errors}`);
    const answer = await fetch(`${url}/health`).catch(() => undefined);
    if (answer?.ok) break;
    if (Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`the fixture server did not start within 60 s: ${errors}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return {
    url,
    child,
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exit = once(child, 'exit');
      child.kill('SIGKILL');
      await exit;
    },
  };
}
