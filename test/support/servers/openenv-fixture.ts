// The Python package's server with one of our fixture environments, as a process on a free port.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { freePort } from '../../../src/stack/free-port.js';

/** On a machine that was busy with other tests, the server's imports took 70 s. */
const startsWithinMs = 300_000;

export interface OpenEnvFixture {
  url: string;
  child: ChildProcess;
  stop(): Promise<void>;
}

/** The guessing game of `game_server.py`. `key`: the `http` server asks for it in the header `X-Key`. `isGraded`: its reset gives a reward, too. */
export function startGameServer(
  python: string,
  kind: 'gym' | 'http',
  { places = 8, key, isGraded = false }: { places?: number; key?: string; isGraded?: boolean } = {},
): Promise<OpenEnvFixture> {
  const args = [String(places), kind, ...(key === undefined ? [] : [key])];
  return start(python, 'game_server.py', args, isGraded ? { GAME_RESET_REWARD: '1' } : {});
}

/**
 * `ungraded`: name of an environment in `ungraded_env.py`; if absent, the other fixture is used. `env` changes the other fixture:
 * `FIXTURE_EXTRA_TOOL` adds a tool, `FIXTURE_NO_REWARD` removes all rewards.
 */
export async function startOpenEnvFixture(
  python: string,
  maxSessions: number,
  ungraded?: 'gym' | 'rewardless',
  env: Record<string, string> = {},
): Promise<OpenEnvFixture> {
  const file = ungraded === undefined ? 'fixture_env.py' : 'ungraded_env.py';
  return start(python, file, [String(maxSessions), ...(ungraded ? [ungraded] : [])], env);
}

function start(
  python: string,
  file: string,
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<OpenEnvFixture> {
  const script = resolve('test/environments/openenv', file);
  return startPythonServer(python, (port) => [script, String(port), ...args], env);
}

/** Any server in Python that answers `GET /health`. `argsFor`: the script and its arguments, for a free port. */
export async function startPythonServer(
  python: string,
  argsFor: (port: number) => readonly string[],
  env: Record<string, string> = {},
): Promise<OpenEnvFixture> {
  const port = await freePort();
  const child = spawn(python, argsFor(port), {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, ...env },
  });
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const url = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + startsWithinMs;
  for (;;) {
    if (child.exitCode !== null)
      throw new Error(`the Python server exited with ${child.exitCode}: ${errors}`);
    const answer = await fetch(`${url}/health`).catch(() => undefined);
    if (answer?.ok) break;
    if (Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`the Python server did not start within ${startsWithinMs / 1000} s: ${errors}`);
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
