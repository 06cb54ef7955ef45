import { AsyncLocalStorage } from 'node:async_hooks';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { beforeEach, expect, test } from 'vitest';
import { createFolderSync } from '../../../src/store/objects/folder-sync.js';
import { ownFolder } from '../../support/scratch-folder.js';

let root: string;
beforeEach(() => {
  root = ownFolder();
});

/** Whether `sync` remembers the folder. The test deletes the folder without a notice: a remembered folder is not made again. */
async function remembers(sync: ReturnType<typeof createFolderSync>, folder: string): Promise<boolean> {
  rmSync(folder, { recursive: true });
  await sync.ensureFolder(folder);
  return !existsSync(folder);
}

test('a folder and its parents are made, even if many callers ask at once', async () => {
  const sync = createFolderSync(root);
  const folder = join(root, 'a', 'b', 'c');
  await Promise.all(Array.from({ length: 20 }, () => sync.ensureFolder(folder)));
  expect(existsSync(folder)).toBe(true);
});

test('only the last used folders are remembered', async () => {
  const sync = createFolderSync(root, 4);
  const folders = Array.from({ length: 6 }, (_, step) => join(root, String(step)));
  for (const folder of folders) {
    await sync.ensureFolder(folder);
    await sync.ensureFolder(folders[0] as string);
  }
  expect(await remembers(sync, folders[0] as string)).toBe(true);
  expect(await remembers(sync, folders[5] as string)).toBe(true);
  expect(await remembers(sync, folders[1] as string)).toBe(false);
});

test('a folder that was deleted is made again', async () => {
  const sync = createFolderSync(root);
  const folder = join(root, 'a', 'b');
  await sync.ensureFolder(folder);
  rmSync(join(root, 'a'), { recursive: true });
  sync.forget(folder);
  await sync.ensureFolder(folder);
  expect(existsSync(folder)).toBe(true);
});

test('a remembered folder does not keep the activities that made it in memory', async () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const sync = createFolderSync(root);
  const activity = new AsyncLocalStorage<object>();
  const makers: WeakRef<object>[] = [];
  for (let step = 0; step < 20; step++) {
    const maker = { step };
    makers.push(new WeakRef(maker));
    await activity.run(maker, () => sync.ensureFolder(join(root, 'made', String(step))));
  }
  for (let i = 0; i < 5; i++) {
    await turn();
    collectGarbage();
  }
  expect(makers.filter((maker) => maker.deref() !== undefined).length).toBeLessThanOrEqual(2);
});
