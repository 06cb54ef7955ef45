// Requests per second through the real client against the built-in server in a process of its own.
// Each episode is reset, two calls, grade; 256 at once, sockets reused. A request is one frame and its reply.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { generateTasks } from '../src/environments/apps/generate.js';
import { appNames } from '../src/environments/apps/registry.js';
import { oracle } from '../src/environments/apps/task-key.js';
import { createOpenEnvBackend } from '../src/environments/openenv/openenv-backend.js';
import type { Task } from '../src/spec/records/task.js';

const episodesAtOnce = 256;

export interface EnvironmentServer {
  url: string;
  token: string;
  stop(): void;
}

export async function startEnvironmentServer(): Promise<EnvironmentServer> {
  const token = randomBytes(16).toString('hex');
  const main = fileURLToPath(new URL('../src/environments/server/main.js', import.meta.url));
  const child = spawn(process.execPath, [main, '--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, LONGHAUL_GRADING_TOKEN: token },
  });
  const lines = createInterface({ input: child.stdout });
  for await (const line of lines) {
    const { url } = JSON.parse(line) as { url: string };
    return { url, token, stop: () => void child.kill('SIGTERM') };
  }
  throw new Error('the environment server ended before it was ready');
}

async function play(
  backend: ReturnType<typeof createOpenEnvBackend>,
  task: Task,
  seed: number,
): Promise<number> {
  const env = await backend.open(
    task,
    { seed, episodeId: `bench-${seed}`, tryNumber: 0 },
    new AbortController().signal,
  );
  let requests = 2;
  try {
    const calls = oracle(task.task_key);
    for (let turn = 0; turn < 2; turn++) {
      const call = calls[turn % calls.length];
      if (!call) continue;
      await env.callTool(call, { turn, tryNumber: 0 });
      requests += 1;
    }
    await env.grade({ finalAnswer: '', tryNumber: 0 });
  } finally {
    await env.close();
  }
  return requests;
}

/** Requests per second over `seconds`, after a second of warming up. */
export async function measureEnvironment(seconds = 5): Promise<number> {
  const server = await startEnvironmentServer();
  const backend = createOpenEnvBackend({
    url: server.url,
    gradingToken: server.token,
    maxSessions: episodesAtOnce,
  });
  try {
    // As many tasks as a step of the quickstart has groups, so that worlds come from cold and warm caches alike.
    const tasks = generateTasks({ apps: [...appNames], seed: 1, train_tasks: 512, held_out_tasks: 0 });
    let episode = 0;
    const playFor = async (milliseconds: number): Promise<number> => {
      const end = performance.now() + milliseconds;
      const counts = await Promise.all(
        Array.from({ length: episodesAtOnce }, async () => {
          let requests = 0;
          while (performance.now() < end) {
            const number = episode++;
            const task = tasks[number % tasks.length];
            if (task) requests += await play(backend, task, number);
          }
          return requests;
        }),
      );
      return counts.reduce((sum, count) => sum + count, 0);
    };
    await playFor(1000);
    const start = performance.now();
    const requests = await playFor(1000 * seconds);
    return (1000 * requests) / (performance.now() - start);
  } finally {
    await backend.close();
    server.stop();
  }
}
