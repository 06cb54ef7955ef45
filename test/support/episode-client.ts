// A client of an environment server, run as a separate process: it opens episodes and calls tools until it is killed. Arguments: url,
// grading token, number of episodes. Prints one line when all episodes are open.
import { generateTasks } from '../../examples/apps/generate.js';
import { appNames } from '../../examples/apps/registry.js';
import { oracle } from '../../examples/apps/task-key.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';

const [, , url = '', gradingToken = '', count = '1'] = process.argv;
const maxSessions = Number(count);
const backend = createOpenEnvBackend({ url, gradingToken, maxSessions });
const tasks = generateTasks({ apps: [...appNames], seed: 3, train_tasks: maxSessions, held_out_tasks: 0 });
const { signal } = new AbortController();

const episodes = await Promise.all(
  tasks.map(async (task, seed) => ({
    task,
    environment: await backend.open(task, { seed, episodeId: `e${seed}`, tryNumber: 0 }, signal),
  })),
);
process.stdout.write('open\n');
await Promise.all(
  episodes.map(async ({ task, environment }) => {
    const [call] = oracle(task.task_key);
    if (!call) throw new Error(`${task.task_key} has no call`);
    for (let turn = 0; ; turn++) await environment.callTool(call, { turn, tryNumber: 0 });
  }),
);
