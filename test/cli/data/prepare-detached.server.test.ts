// `longhaul data prepare --detach` returns once the dataset's files are accepted, or with the reason why they are not.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { testWorker } from '../../support/test-worker.js';
import { expect, test } from 'vitest';
import { withFailures } from '../../../src/activities/attempt/failure-mapping.js';
import { currentScope } from '../../../src/activities/attempt/scope.js';
import type { DataActivities } from '../../../src/activities/data-contracts.js';
import { gatherDataset } from '../../../src/activities/data/gather-dataset.js';
import { generateTasks } from '../../../examples/apps/generate.js';
import { InvalidSpec } from '../../../src/spec/invalid-spec.js';
import { guardActivities } from '../../../src/workers/attempt/activity-guard.js';
import { OpenActivities } from '../../../src/workers/attempt/open-activities.js';
import { orchestratorQueue } from '../../../src/workflows/messages.js';
import { gate, uniqueName, workflowBundle } from '../../workflows/scripted-run.js';
import {
  folder,
  longhaul,
  store,
  storeAddress,
  temporal,
  useCommandStage,
} from '../inspect/command-stage.js';

useCommandStage();

/** Writes a spec with a version of its own; `change` replaces parts of it. */
function written(change: object = {}) {
  const version = uniqueName('v');
  const tasks = join(folder, 'tasks.jsonl');
  const rows = generateTasks({ apps: ['tracker'], seed: 1, train_tasks: 2, held_out_tasks: 2 });
  writeFileSync(tasks, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const file = join(folder, `${version}.yaml`);
  writeFileSync(file, JSON.stringify({ name: 'apps', version, tasks, ...change }));
  return { file, id: `apps@${version}` };
}

async function withReader<T>(gather: DataActivities['gatherDataset'], use: () => Promise<T>): Promise<T> {
  const worker = await testWorker({
    connection: temporal.connection,
    taskQueue: orchestratorQueue,
    workflowBundle: await workflowBundle(),
    activities: { gatherDataset: withFailures(gather) },
    interceptors: {
      activity: [guardActivities({ open: new OpenActivities(join(folder, uniqueName('o'))) })],
    },
  });
  return worker.runUntil(use);
}

const detached = (file: string) => longhaul('data', 'prepare', file, '--detach');

test('a dataset that cannot begin is refused with the reason, one that can is reported as started', async () => {
  const read: DataActivities['gatherDataset'] = (input) =>
    gatherDataset({ store }, input, currentScope().signal);
  await withReader(read, async () => {
    const solutions = join(folder, 'solutions.jsonl');
    const refused: [object, RegExp][] = [
      [{ tasks: '/nowhere/tasks.jsonl' }, /\/nowhere\/tasks\.jsonl is not usable:\n *cannot be read: ENOENT/],
      [
        { solutions },
        /need the environment "tracker", which is not listed; add an entry with env_key: tracker/,
      ],
      [{ difficulty: [9] }, /tasks\.jsonl is not usable/],
      [{ splitt: {} }, /splitt/],
    ];
    const { file, id } = written();
    const [first] = generateTasks({ apps: ['tracker'], seed: 1, train_tasks: 1, held_out_tasks: 0 });
    writeFileSync(solutions, `${JSON.stringify({ task_key: first?.task_key, calls: [] })}\n`);
    for (const [change, reason] of refused) {
      const answer = await detached(written(change).file);
      expect(answer).toMatchObject({ code: 1, output: '' });
      expect(answer.errors).toMatch(reason);
    }
    expect(await detached(file)).toMatchObject({
      code: 0,
      output: `started ${id} (workflow data/${id})\n`,
      errors: expect.not.stringContaining('not read') as string,
    });
  });
});

test('a start whose files are not read in time says so', async () => {
  const held = gate();
  await withReader(
    async () => {
      await held.wait();
      return { tasks: 0, solved: 0, has_teacher: false };
    },
    async () => {
      const { file, id } = written();
      const { code, output, errors } = await longhaul('data', 'prepare', file, '--detach', '--json');
      expect(JSON.parse(output)).toEqual({ dataset: id, workflowId: `data/${id}`, accepted: false });
      expect(errors).toMatch(/its files are not read within 10 s, so they may still be refused/);
      expect(code).toBe(0);
      await temporal.client.workflow.getHandle(`data/${id}`).terminate();
      held.release();
    },
  );
});

test('a preparation that failed, was ended or goes on is named where its dataset is looked for', async () => {
  const show = (...args: string[]) => longhaul('data', 'show', ...args, '--store', storeAddress);
  const failing: DataActivities['gatherDataset'] = () =>
    Promise.reject(new InvalidSpec([{ path: 'tasks', problem: 'are odd', fix: '' }], 'the dataset spec'));
  await withReader(failing, async () => {
    const { file, id } = written();
    expect((await detached(file)).code).toBe(1);
    const { code, errors } = await show(id);
    expect(code).toBe(1);
    expect(errors).toMatch(
      /has no prepared dataset .*\nthe preparation of apps@v\S+ failed at 2\d{3}-.* UTC: the dataset spec has one problem:\n {2}tasks: are odd/s,
    );
    expect((await show()).output).toMatch(new RegExp(`the preparation of ${id} failed at`));
    expect((await show('apps@unheard')).errors).not.toContain('preparation');
  });
  const held = gate();
  const waiting: DataActivities['gatherDataset'] = async () => {
    await held.wait();
    return { tasks: 0, solved: 0, has_teacher: false };
  };
  await withReader(waiting, async () => {
    const { file, id } = written();
    await detached(file);
    expect((await show(id)).errors).toMatch(/has been under way since .* UTC/);
    await temporal.client.workflow.getHandle(`data/${id}`).terminate('no longer needed');
    expect((await show(id)).errors).toMatch(/was terminated at .* UTC: no longer needed/);
    held.release();
  });
});
