// Plays the solutions of 100 tasks with journals until it is killed, as a node worker does. Arguments: url, key, folder of the tasks, folder
// that the next process gets too. Each finished episode is a file there.
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { EnvironmentBackend } from '../../../src/environments/environment.js';
import { JournalFolder } from '../../../src/episode/journal-folder.js';
import type { Solution } from '../../../src/data/task-file.js';
import { fleetBackend, playCalls, readFleetTasks, run } from './fixture.js';

const [, , url = '', key = '', tasksFolder = '', folder = ''] = process.argv;
const { tasks, solutions, codes } = readFleetTasks(tasksFolder);
const finished = join(folder, 'finished');
mkdirSync(finished, { recursive: true });
const backend = fleetBackend({ url, key, codes, owner: 'node-1', folder });
/** Names each opening in its instance, so that the service's log shows two of the same one. */
const named: EnvironmentBackend = {
  ...backend,
  open: ({ env_variables, ...task }, options, signal) =>
    backend.open({ ...task, env_variables: { ...env_variables, OPENING: randomUUID() } }, options, signal),
};
const journals = await new JournalFolder(join(folder, 'journals'), console.error).below('e/');

await Promise.all(
  tasks.map(async (task, slot) => {
    const file = join(finished, `${slot}.json`);
    if (existsSync(file)) return;
    const journal = await journals.open({
      ...{
        schema: 'longhaul.journal/1',
        episode: `e/${slot}`,
        plan: run,
        state: 'a'.repeat(64),
        sampling: 's',
      },
      ...{ seed: 1, random: { seed: 1, domain: 'train', step: 1, slot, sample: 0 } },
    });
    const { outcome } = await playCalls(named, task, solutions.get(task.task_key) as Solution, {
      ...{ slot, journal },
    });
    writeFileSync(file, JSON.stringify(outcome));
    await journal.remove();
  }),
);
await backend.close();
