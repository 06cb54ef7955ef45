import { mkdirSync, mkdtempSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { StateFolder } from '../../src/policy/state-folder.js';
import { scratchFolder } from '../support/scratch-folder.js';

const scratch = scratchFolder();

let folder: string;
let states: StateFolder;
beforeEach(() => {
  folder = mkdtempSync(join(scratch, 'disk-'));
  states = new StateFolder(folder);
});

const stateOf = (step: number) => ({ step, state: String(step % 10).repeat(64) });

/** Creates a state's file and sets its folder's modification time to `minute`. */
function save(run: string, step: number, minute = step): void {
  const path = states.path(run, stateOf(step));
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, 'state');
  utimesSync(dirname(path), minute * 60, minute * 60);
}

test('the newest states of a run stay; later steps of another store are removed', async () => {
  for (const step of [1, 2, 3, 9]) save('tiny', step);
  await states.prune('tiny', stateOf(3), 2);
  expect((await states.list('tiny')).map(({ step }) => step)).toEqual([3, 2]);
});

test('a state that is being uploaded stays, in addition to the newest states', async () => {
  for (const step of [1, 2, 3, 4, 5]) save('uploading', step);
  await states.prune('uploading', stateOf(5), 2, 1);
  expect((await states.list('uploading')).map(({ step }) => step)).toEqual([5, 4, 1]);
});

test('with many runs, the states of the runs that saved most recently stay', async () => {
  for (const [minute, run] of ['a', 'b', 'c', 'd'].entries()) save(run, 1, minute + 1);
  save('a', 2, 9);
  await states.pruneRuns(2);
  expect(readdirSync(folder).sort()).toEqual(['a', 'd']);
  expect(await states.list('a')).toHaveLength(2);
});

test('a disk without states, or with few runs, stays unchanged', async () => {
  await new StateFolder(join(folder, 'none')).pruneRuns(2);
  save('a', 1);
  await states.pruneRuns(2);
  expect(await states.list('a')).toHaveLength(1);
});
