import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { SpareFiles } from '../../src/episode/spare-files.js';
import { ownFolder } from '../support/scratch-folder.js';

describe('spare files', () => {
  let folder: string;
  let spares: SpareFiles;
  beforeEach(() => {
    folder = ownFolder();
    spares = new SpareFiles(join(folder, 'spare'));
  });

  /** A file with content, open for appending. */
  const used = (name: string): { path: string; file: number } => {
    const path = join(folder, name);
    appendFileSync(path, `of ${name}`);
    return { path, file: openSync(path, 'a') };
  };
  const openFiles = (): string[] => readdirSync('/proc/self/fd');

  it('are used again under new paths, and are empty', async () => {
    const { path, file } = used('first');
    const inode = statSync(path).ino;
    await spares.give(path, file);
    expect(existsSync(path)).toBe(false);
    const second = join(folder, 'second');
    const taken = await spares.take(second);
    expect(readFileSync(second, 'utf8')).toBe('');
    writeSync(taken!, 'of second');
    expect([readFileSync(second, 'utf8'), statSync(second).ino]).toEqual(['of second', inode]);
    closeSync(taken!);
  });

  it('are taken only once; without a spare file, null is returned', async () => {
    expect(await spares.take(join(folder, 'a'))).toBeNull();
    const { path, file } = used('b');
    await spares.give(path, file);
    const taken = await spares.take(join(folder, 'c'));
    expect(await spares.take(join(folder, 'd'))).toBeNull();
    closeSync(taken!);
  });

  it('leave nothing open and no file behind if they cannot be moved', async () => {
    const before = openFiles().length;
    const { path, file } = used('first');
    await spares.give(path, file);
    mkdirSync(join(folder, 'taken'));
    expect(await spares.take(join(folder, 'taken'))).toBeNull();
    writeFileSync(join(folder, 'elsewhere'), '');
    const unfit = new SpareFiles(join(folder, 'elsewhere', 'spare'));
    const second = used('second');
    await unfit.give(second.path, second.file);
    expect(existsSync(second.path)).toBe(false);
    expect(openFiles()).toHaveLength(before);
    expect(readdirSync(join(folder, 'spare'))).toEqual([]);
  });

  it('of an earlier process are removed when the first file is kept', async () => {
    mkdirSync(join(folder, 'spare'));
    writeFileSync(join(folder, 'spare', '17'), 'of an earlier process');
    const { path, file } = used('first');
    await spares.give(path, file);
    expect(readdirSync(join(folder, 'spare'))).toEqual(['0']);
    closeSync((await spares.take(path))!);
  });

  it('are at most as many as a step has episodes', async () => {
    const all = Array.from({ length: 520 }, (_, index) => used(`${index}`));
    await Promise.all(all.map(({ path, file }) => spares.give(path, file)));
    expect(readdirSync(join(folder, 'spare'))).toHaveLength(512);
    expect(readdirSync(folder)).toEqual(['spare']);
    for (let left = 512; left > 0; left--) closeSync((await spares.take(join(folder, 'out')))!);
  });
});
