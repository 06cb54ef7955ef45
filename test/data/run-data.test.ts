// One orchestrator plans for many runs in turn, so the cached data of a run must survive the turns of all other runs.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { writeDataset } from '../../src/data/dataset-writer.js';
import { toolListText } from '../../src/episode/tool-list.js';
import { canonicalText } from '../../src/store/records/canonical.js';
import { DatasetCache } from '../../src/data/dataset-cache.js';
import { openRun } from '../../src/activities/run/open-run.js';
import type { OrchestratorDeps } from '../../src/activities/orchestrator-deps.js';
import { RecentlyUsed } from '../../src/base/recently-used.js';
import { ProcessLife } from '../../src/activities/attempt/process-life.js';
import { RunDataCache } from '../../src/data/run-data.js';
import { openStore } from '../../src/store/open-store.js';
import { specFor, testTasks, workflow, writeData } from '../activities/fixture.js';
import { ownFolder, scratchFolder } from '../support/scratch-folder.js';

const runs = Array.from({ length: 12 }, (_, index) => `run-${index}`);

describe('the data of many runs', () => {
  const folder = scratchFolder();

  it('is read once per run, however often each run is needed in turn', async () => {
    const store = await openStore(`dir:${join(folder, 'store')}`);
    const deps = { store, datasets: new DatasetCache(store), log: () => undefined };
    const life = new ProcessLife(
      { name: 'orchestrator', host: 'test', pid: process.pid },
      null,
      'orchestrator_restart',
    );
    const open = { ...deps, life, temporalAddress: 'there', clusterId: async () => 'c' };
    for (const [index, name] of runs.entries()) {
      const data = join(folder, name);
      mkdirSync(data);
      const files = writeData(data);
      // Each run has one task less than the one before, so no two have the same data.
      const tasks = testTasks().slice(index);
      writeFileSync(files.tasks, tasks.map((task) => `${JSON.stringify(task)}\n`).join(''));
      const spec = { ...specFor(files), name };
      await openRun(open as unknown as OrchestratorDeps, { spec, workflow });
    }
    const reads: string[] = [];
    const get = store.get.bind(store);
    store.get = (key) => {
      reads.push(key);
      return get(key);
    };
    const cache = new RunDataCache(store, new DatasetCache(store));
    for (let turn = 0; turn < 3; turn += 1) {
      for (const [index, run] of runs.entries())
        expect((await cache.get(run)).tasks).toHaveLength(testTasks().length - index);
    }
    const datasets = reads.filter((key) => key.endsWith('/tasks.jsonl'));
    expect(datasets).toHaveLength(runs.length);
    expect(new Set(datasets).size).toBe(runs.length);
    // A tokenizer takes longest to load, so all runs share one.
    const assets = reads.filter((key) => key.startsWith('assets/'));
    expect(new Set(assets).size).toBe(2);
    expect(assets).toHaveLength(1 + runs.length);
  });
});

describe('the tools of a dataset', () => {
  it('keep the numbers of the server', async () => {
    const store = await openStore(`dir:${join(ownFolder(), 'store')}`);
    const tools =
      '{"counter":[{"description":"","input_schema":{"properties":{"id":{"default":1.0,"enum":[1915883588174806058]}},"type":"object"},"name":"f"}]}';
    const files = { tasks: testTasks(), demonstrations: [], tools };
    const reference = await writeDataset(store, { name: 'numbers', version: 'v1' }, files);
    const dataset = await new DatasetCache(store).load(reference);
    expect(canonicalText(dataset.tools)).toBe(tools);
    expect(toolListText(dataset.tools['counter'] ?? [], 'signatures')).toBe('f(id?: 1915883588174806058)');
  });
});

describe('RecentlyUsed', () => {
  it('drops the value that was used longest ago, and keeps no failure', async () => {
    const cache = new RecentlyUsed<string>(2);
    const made: string[] = [];
    const get = (key: string): Promise<string> =>
      cache.get(key, async () => {
        made.push(key);
        if (key === 'bad') throw new Error('no');
        return key;
      });
    for (const key of ['a', 'b', 'a', 'c', 'a']) await get(key);
    expect(made).toEqual(['a', 'b', 'c']);
    await get('b');
    expect(made).toEqual(['a', 'b', 'c', 'b']);
    for (let i = 0; i < 2; i += 1) await expect(get('bad')).rejects.toThrow('no');
    expect(made.filter((key) => key === 'bad')).toHaveLength(2);
  });
});
