// How many requests the server answers to 256 episodes at once: it must not be what delays a step.
import { expect, it } from 'vitest';
import { generateTasks } from '../../../../examples/apps/generate.js';
import { appNames } from '../../../../examples/apps/registry.js';
import { oracle, oracleAnswer } from '../../../../examples/apps/task-key.js';
import { createOpenEnvBackend } from '../../../../src/environments/openenv/openenv-backend.js';
import { startEnvironmentProcess, testToken } from '../../../support/servers/environment-process.js';

const episodesAtOnce = 256;
const seconds = 2;
/** Two idle cores answer 11,000. Tests share their cores, and run the server from its source. */
const leastPerSecond = 200;

it('answers at least 200 requests a second to 256 episodes at once', async () => {
  const server = await startEnvironmentProcess();
  const backend = createOpenEnvBackend({
    ...{ url: server.url, gradingToken: testToken, maxSessions: episodesAtOnce },
  });
  try {
    const tasks = generateTasks({ apps: [...appNames], seed: 1, train_tasks: 64, held_out_tasks: 0 });
    let [requests, episodes] = [0, 0];
    const playUntil = async (end: number): Promise<void> => {
      while (performance.now() < end) {
        const seed = episodes++;
        const task = tasks[seed % tasks.length]!;
        const episode = { seed, episodeId: `e${seed}`, tryNumber: 0 };
        const env = await backend.open(task, episode, new AbortController().signal);
        for (const [turn, call] of oracle(task.task_key).entries())
          await env.callTool(call, { turn, tryNumber: 0 });
        const finalAnswer = oracleAnswer(task.task_key);
        expect((await env.grade({ finalAnswer, tryNumber: 0 })).outcome.value).toBe(1);
        await env.close();
        requests += oracle(task.task_key).length + 2;
      }
    };
    const playAll = (ms: number): Promise<unknown> =>
      Promise.all(Array.from({ length: episodesAtOnce }, () => playUntil(performance.now() + ms)));
    await playAll(500);
    requests = 0;
    const begun = performance.now();
    await playAll(seconds * 1_000);
    const perSecond = (1_000 * requests) / (performance.now() - begun);
    console.log(`the environment server answers ${perSecond.toFixed(0)} requests a second`);
    expect(perSecond).toBeGreaterThan(leastPerSecond);
  } finally {
    await backend.close();
    await server.kill('SIGKILL');
  }
});
