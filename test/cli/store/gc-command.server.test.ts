// `longhaul gc`: its output, and the checkpoints that it keeps.
import { describe, expect, test } from 'vitest';
import { stepsText } from '../../../src/cli/store/gc-command.js';
import { runKey } from '../../../src/store/record-keys.js';
import type { RecordTypes } from '../../../src/spec/records/record-kinds.js';
import { run, tamper } from '../../activities/fixture.js';
import { longhaul } from '../../support/command-line.js';
import { copy, keysOf, useFinishedRun } from './gc-fixture.js';
import { signedAgain } from '../../support/signed-again.js';

useFinishedRun();

describe('longhaul gc', () => {
  test('with --dry-run says what it would delete and why the rest stays, and changes nothing', async () => {
    const { store, address } = await copy();
    const before = await keysOf(store);
    const { output, code } = await longhaul(['gc', run, '--dry-run', '--keep-last', '2', '--store', address]);
    expect(code).toBe(0);
    expect(output).toMatch(/of steps 1–4 are deleted/);
    expect(output).toMatch(/kept: step 6 \(newest\); step 5 \(keep_last\)/);
    expect(output).toMatch(/episodes +of steps 3–6 go into one file each/);
    expect(await keysOf(store)).toEqual(before);
    const { output: all } = await longhaul(['gc', run, '--dry-run', '--store', address]);
    // It keeps the newest two checkpoints, the checkpoint of each tenth evaluation, and the best checkpoint.
    expect(all).toMatch(/of steps 1–4 are deleted/);
    expect(all).toMatch(/kept: step 6 \(newest\); step 5 \(keep_last\)\n/);
    expect(all).toMatch(/batches +of steps 1–6 are compressed\n/);
  });

  test('uses the spec’s retention unless a flag replaces it', async () => {
    const { store, address } = await copy();
    const retention = { keep_last: 1, keep_every: 3, keep_best: 0 };
    await tamper(store, runKey(run), (bytes) => {
      const record = JSON.parse(bytes.toString()) as RecordTypes['run'];
      return signedAgain(JSON.stringify({ ...record, spec: { ...record.spec, retention } }));
    });
    const kept = async (...flags: string[]): Promise<unknown> =>
      JSON.parse((await longhaul(['gc', run, '--dry-run', '--json', ...flags, '--store', address])).output);
    expect(await kept()).toMatchObject({
      checkpoints: [1, 2, 4, 5],
      kept: { 3: ['keep_every'], 6: ['newest', 'keep_every'] },
    });
    expect(await kept('--keep-every', '0')).toMatchObject({ checkpoints: [1, 2, 3, 4, 5] });
  });

  test('says what is wrong with a run, a grace period or a number', async () => {
    const { address } = await copy();
    const errors = async (...args: string[]) => (await longhaul([...args, '--store', address])).errors;
    expect(await errors('gc', 'none')).toMatch(/there is no run "none"/);
    expect(await errors('gc', run, '--grace', '-1')).toMatch(/whole number from 0 up/);
    expect(await errors('gc', run, '--keep-last', '0')).toMatch(/whole number from 1 up/);
  });
});

test.each([
  [[7], 'step 7'],
  [[3, 4, 5, 130], 'steps 3–5, 130'],
  [[1, 5, 6, 7, 8], 'steps 1, 5–8'],
  [[5, 10, 15, 20, 25, 27], 'steps 5–25 (every 5th), 27'],
  [[2, 4, 6], 'steps 2, 4, 6'],
  [[0, 22, 44, 66], 'steps 0–66 (every 22nd)'],
])('the steps %j are written as "%s"', (steps, text) => {
  expect(stepsText(steps)).toBe(text);
});
