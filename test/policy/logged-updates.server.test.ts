// A replay reads the next batch while the engine computes, and leaves no batch on the disk.
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, it, vi } from 'vitest';
import { loggedUpdates } from '../../src/policy/logged-updates.js';
import { batchKey } from '../../src/store/record-keys.js';
import { readUpdate } from '../../src/store/runs/run-records.js';
import { UnreadableRecord } from '../../src/store/record-errors.js';
import { run } from '../activities/fixture.js';
import { harness, useHarness } from '../activities/own-harness.js';
import { ownFolder } from '../support/scratch-folder.js';

useHarness();
let folder: string;
beforeEach(async () => {
  folder = ownFolder();
  const [phase] = harness.spec['warm_start'] as object[];
  await harness.open({ ...harness.spec, warm_start: [{ ...phase, updates: 3 }] });
  await harness.advance(3);
});

const batches = (): Promise<string[]> => readdir(join(folder, 'batches'));
const fileOf = async (step: number): Promise<string> =>
  `${(await readUpdate(harness.store, run, step)).identity.batch}.safetensors`;

it('a replay reads the next batch while the caller works on the current one, and removes each batch after use', async () => {
  const steps: number[] = [];
  for await (const { step, input } of loggedUpdates(harness.store, folder, run, { from: 1, to: 3 })) {
    expect(input?.plan.step).toBe(step);
    const due = await Promise.all([step, step + 1].filter((one) => one <= 3).map(fileOf));
    await vi.waitFor(async () => expect((await batches()).sort()).toEqual(due.sort()), { timeout: 120_000 });
    steps.push(step);
  }
  expect(steps).toEqual([1, 2, 3]);
  expect(await batches()).toEqual([]);
});

it('a replay leaves nothing on the disk if its caller stops early', async () => {
  for await (const { step } of loggedUpdates(harness.store, folder, run, { from: 1, to: 3 }))
    if (step === 1) break;
  expect(await batches()).toEqual([]);
});

it('a replay reports a damaged batch when its step comes', async () => {
  await writeFile(join(harness.folder, 'store', batchKey(run, 2)), 'not what was recorded');
  const steps: number[] = [];
  const reading = async (): Promise<void> => {
    for await (const { step } of loggedUpdates(harness.store, folder, run, { from: 1, to: 3 }))
      steps.push(step);
  };
  await expect(reading()).rejects.toThrow(UnreadableRecord);
  expect(steps).toEqual([1]);
  expect(await batches()).toEqual([]);
});
