// The example server as a separate process, on a free port. It is stopped by its pid.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export const testToken = 'a-token-for-tests';

export interface EnvironmentProcess {
  url: string;
  child: ChildProcess;
  kill(signal?: NodeJS.Signals): Promise<void>;
}

/** Starts the server. `errors` collects its standard error. */
export function spawnEnvironmentServer(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): ChildProcess {
  const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));
  const register = path('../preloads/typescript-register.mjs');
  // Compiled, as benchmarks are, it needs no preload.
  const isCompiled = import.meta.url.endsWith('.js');
  const main = path(`../../../examples/apps/server/main.${isCompiled ? 'js' : 'ts'}`);
  const preload = isCompiled ? [] : ['--import', register];
  return spawn(process.execPath, [...preload, main, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...environment },
  });
}

export async function startEnvironmentProcess(
  args: readonly string[] = [],
  token = testToken,
): Promise<EnvironmentProcess> {
  const child = spawnEnvironmentServer(args, { LONGHAUL_GRADING_TOKEN: token });
  let errors = '';
  child.stderr?.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const url = await new Promise<string>((resolve, reject) => {
    const lines = createInterface({ input: child.stdout! });
    lines.once('line', (line) => resolve((JSON.parse(line) as { url: string }).url));
    child.once('exit', (code) => reject(new Error(`the environment server exited with ${code}: ${errors}`)));
  });
  return {
    url,
    child,
    async kill(signal = 'SIGTERM') {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exit = once(child, 'exit');
      child.kill(signal);
      await exit;
    },
  };
}
