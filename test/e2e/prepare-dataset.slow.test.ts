// A dataset is prepared by real processes that are killed again and again, and by the command line.
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { generateTasks } from '../../examples/apps/generate.js';
import { teacherCalls } from '../../examples/apps/teacher.js';
import { scenarioOf } from '../../examples/apps/task-key.js';
import { Draw } from '../../examples/apps/random.js';
import type { DatasetManifest } from '../../src/spec/records/manifests.js';
import { datasetManifestKey } from '../../src/store/record-keys.js';
import { readRecord } from '../../src/store/records/records.js';
import type { Cluster } from '../support/cluster/cluster.js';
import { borrowCluster, returnCluster, tokenVariable } from '../support/cluster/shared-cluster.js';
import { repository } from '../support/repository.js';
import { until } from '../support/until.js';

const kills = 10;
const solved = 160;

let cluster: Cluster;
beforeAll(async () => {
  cluster = await borrowCluster();
  const tasks = generateTasks({
    apps: ['tracker', 'booking'],
    seed: 1,
    train_tasks: 300,
    held_out_tasks: 40,
  });
  const lines = (rows: readonly object[]): string => rows.map((row) => `${JSON.stringify(row)}\n`).join('');
  writeFileSync(tasksFile(), lines(tasks));
  // The teacher makes mistakes, so some of these solutions fail.
  const solutions = tasks.slice(0, solved).map(({ task_key }) => {
    const { address, scenario } = scenarioOf(task_key);
    return { task_key, calls: teacherCalls(address.app, scenario, new Draw(`solution/${task_key}`)) };
  });
  writeFileSync(solutionsFile(), lines(solutions));
});
afterAll(() => returnCluster(cluster));

const tasksFile = (): string => join(cluster.folder, 'tasks.jsonl');
const solutionsFile = (): string => join(cluster.folder, 'solutions.jsonl');
const specOf = (version: string) => ({
  ...{ name: 'apps', version, tasks: tasksFile(), solutions: solutionsFile() },
  split: { held_out_ratio: 0.1, max_held_out: 30, max_env_share: 1 },
  environments: ['tracker', 'booking'].map((env_key) => ({
    ...{ env_key, url: cluster.environments.url, grading_token_env: tokenVariable },
  })),
  parallel: 2,
});
const start = (version: string) =>
  cluster.temporal.client.workflow.start('prepareDataset', {
    ...{ taskQueue: 'longhaul', workflowId: `data/apps@${version}`, args: [specOf(version)] },
    workflowTaskTimeout: '5 seconds',
  });
const manifestOf = (version: string): Promise<DatasetManifest | null> =>
  readRecord(cluster.store, datasetManifestKey('apps', version), 'dataset');
const gatesOf = (version: string): string[] => {
  const folder = join(cluster.folder, 'store', 'datasets', 'apps', version, 'gates');
  return existsSync(folder) ? readdirSync(folder) : [];
};

describe('a preparation', () => {
  it(`that is killed ${kills} times gives the dataset of an undisturbed one`, async () => {
    await (await start('v1')).result();
    const undisturbed = await manifestOf('v1');
    expect(undisturbed?.prepared?.excluded['gate']).toBeGreaterThan(0);
    expect(undisturbed?.demonstrations['solution']).toBeGreaterThan(10);

    const disturbed = await start('v2');
    const [worker] = cluster.orchestrators;
    if (!worker) throw new Error('there is no orchestrator');
    const all = gatesOf('v1').length;
    for (let kill = 0; kill < kills; kill++) {
      const reached = Math.floor((all * kill) / kills);
      await until(() => gatesOf('v2').length >= reached, `${reached} gates`);
      await worker.kill();
      worker.start();
      await delay(100);
    }
    await disturbed.result();
    const found = await manifestOf('v2');
    expect(found?.files.map(({ path, sha256 }) => [path, sha256])).toEqual(
      undisturbed?.files.map(({ path, sha256 }) => [path, sha256]),
    );
    expect(gatesOf('v2').sort()).toEqual(gatesOf('v1').sort());
  });

  it('is started and read by the command line', async () => {
    const file = join(cluster.folder, 'apps.yaml');
    writeFileSync(file, JSON.stringify(specOf('v3')));
    const prepared = await longhaul('data', 'prepare', file, '--temporal-address', cluster.temporal.address);
    expect(prepared).toMatch(/^apps@v3: \d+ training tasks, \d+ held out\nleft out: .*failed a check/);
    const inStore = ['--store', cluster.storeAddress];
    expect(await longhaul('data', 'show', ...inStore)).toMatch(/apps@v1 .*\napps@v2 .*\napps@v3 /);
    const shown = await longhaul('data', 'show', 'apps@v3', ...inStore);
    expect(shown).toContain('160 tasks with solutions, given or taught, were checked');
    expect(shown).toMatch(/failed a check\s+the solution is graded 0/);
    expect(await longhaul('data', 'diff', 'apps@v1', 'apps@v3', ...inStore)).toBe(
      'apps@v1 and apps@v3 have the same tasks on the same sides\n',
    );
    const to = join(cluster.folder, 'exported');
    await longhaul('data', 'export', 'apps@v3', '--to', to, ...inStore);
    expect(readdirSync(to)).toEqual([
      ...['demonstrations.jsonl', 'excluded.jsonl', 'manifest.json', 'tasks.jsonl', 'tools.json'],
    ]);
    await expect(longhaul('data', 'show', 'apps@v9', ...inStore)).rejects.toThrow(
      /has no prepared dataset apps@v9/,
    );
  });
});

async function longhaul(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(join(repository, 'bin/longhaul'), args);
  return stdout;
}
