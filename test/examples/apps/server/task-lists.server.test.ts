// The apps' tasks, as a run takes them from the server: they are those of the generator, in its order.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readSourceText } from '../../../../src/data/data-source.js';
import { parseTasks } from '../../../../src/data/task-file.js';
import { generateTasks } from '../../../../examples/apps/generate.js';
import { servedApps, faultsOfApps, listsOf } from '../../../../examples/apps/server/served-apps.js';
import {
  createEnvironmentServer,
  type EnvironmentServer,
} from '../../../../examples/apps/server/environment-server.js';

let server: EnvironmentServer;
beforeAll(async () => {
  const options = { port: 0, faults: faultsOfApps, gradingToken: 'a' };
  server = await createEnvironmentServer({ ...options, apps: servedApps(), listsOf });
});
afterAll(() => server.close());

it.each([
  ['tracker,booking', { apps: ['tracker', 'booking'] }],
  ['wide/tracker', { apps: ['tracker'], profile: 'wide' as const }],
])('of %s come with all of their fields', async (name, choice) => {
  const made = generateTasks({ ...choice, seed: 1, train_tasks: 600, held_out_tasks: 8 });
  const text = await readSourceText(`openenv+${server.url}/${name}?split=train:600&held_out=held_out:8`);
  const indices = { train: 0, held_out: 0 };
  expect(parseTasks(text, 'the server')).toEqual(
    made.map((task) => ({
      ...task,
      reset: { split: task.split === 'train' ? 'train:600' : 'held_out:8', index: indices[task.split]++ },
    })),
  );
});

it('are not listed for a name that is no app’s', async () => {
  await expect(readSourceText(`openenv+${server.url}/tracker,chess`)).rejects.toThrow(
    /has no environment "tracker,chess"; it has tracker, booking/,
  );
});
