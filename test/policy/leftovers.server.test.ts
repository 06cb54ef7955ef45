// Files and folders that killed writers left behind are removed. Those of a living writer stay.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { removeLeftovers } from '../../src/policy/leftovers.js';
import { ownFolder } from '../support/scratch-folder.js';

let folder: string;
beforeEach(() => (folder = ownFolder()));

const dead = spawnSync(process.execPath, ['--version']).pid;

function leave(name: string, minutesAgo = 0): void {
  const path = join(folder, name);
  mkdirSync(path);
  writeFileSync(join(path, 'model.safetensors'), 'half a model');
  const then = Date.now() / 1000 - 60 * minutesAgo;
  utimesSync(path, then, then);
}

test('files and folders of writers that are dead or long silent are removed; those of living writers stay', async () => {
  leave(`model.tmp-${dead}`);
  leave(`model.tmp-${process.pid}`, 60);
  leave(`model.tmp-${process.ppid}`);
  leave('model');
  await removeLeftovers(folder);
  expect(readdirSync(folder).sort()).toEqual(['model', `model.tmp-${process.ppid}`].sort());
});

test('beside a folder that a user chose, only the leftovers of this folder are removed', async () => {
  leave(`model.tmp-${dead}`);
  leave(`other.tmp-${dead}`);
  writeFileSync(join(folder, 'film.part'), '');
  utimesSync(join(folder, 'film.part'), 0, 0);
  await removeLeftovers(folder, 'model.tmp-');
  expect(readdirSync(folder).sort()).toEqual(['film.part', `other.tmp-${dead}`]);
});
