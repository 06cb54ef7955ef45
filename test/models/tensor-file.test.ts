import { readFileSync, truncateSync, writeFileSync, statSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { checkModelFiles, withEngineFolder } from '../../src/models/engine-folder.js';
import { BadModelFolder } from '../../src/models/hf-config.js';
import { floatsOf, type StoredTensor } from '../../src/models/tensor-file.js';
import { ownFolder } from '../support/scratch-folder.js';
import { baseConfig, baseTensors, writeBase, writeTensors } from './foreign-folder.js';

let folder: string;
let file: string;
beforeEach(() => {
  folder = writeBase(join(ownFolder(), 'model'));
  file = join(folder, 'model.safetensors');
});

describe('a weight file', () => {
  const size = (): number => statSync(file).size;
  test.each<[string, () => void, RegExp]>([
    [
      'cut short by one byte',
      () => truncateSync(file, size() - 1),
      /it is cut short: .*copy or download it again/,
    ],
    ['cut in half', () => truncateSync(file, Math.floor(size() / 2)), /it is cut short/],
    [
      'cut inside the header',
      () => truncateSync(file, 100),
      /its header claims \d+ bytes, but the file has 100/,
    ],
    ['empty', () => truncateSync(file, 0), /it has 0 bytes/],
    [
      'longer than its tensors',
      () => writeFileSync(file, Buffer.concat([readFileSync(file), Buffer.alloc(9)])),
      /data bytes/,
    ],
    [
      'a web page',
      () => writeFileSync(file, '<!DOCTYPE html><html><body>Access denied</body></html>'),
      /is not a usable safetensors file/,
    ],
    [
      'a pointer of Git LFS',
      () => writeFileSync(file, 'version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 123\n'),
      /is a Git LFS pointer instead of the file: run `git lfs pull`/,
    ],
  ])('that is %s is refused before a run starts, and the error names it', async (_, damage, message) => {
    await checkModelFiles(folder);
    damage();
    await expect(checkModelFiles(folder)).rejects.toThrow(BadModelFolder);
    await expect(checkModelFiles(folder)).rejects.toThrow(message);
    await expect(checkModelFiles(folder)).rejects.toThrow(file);
  });

  test('of another model is refused if the index lists other tensors in it', async () => {
    rmSync(file);
    const names = Object.keys(baseTensors);
    writeTensors(join(folder, 'a.safetensors'), baseTensors);
    writeTensors(join(folder, 'b.safetensors'), {});
    const index = (last: string): void =>
      writeFileSync(
        join(folder, 'model.safetensors.index.json'),
        JSON.stringify({
          weight_map: Object.fromEntries(names.map((name, i) => [name, i > 0 ? 'a.safetensors' : last])),
        }),
      );
    index('a.safetensors');
    await checkModelFiles(folder);
    index('b.safetensors');
    await expect(checkModelFiles(folder)).rejects.toThrow(
      `b.safetensors: tensor ${names[0]} is missing, but model.safetensors.index.json lists it`,
    );
  });
});

test('a folder that needs no change is loaded as it is; otherwise the temporary folder goes', async () => {
  const scratch = ownFolder();
  const path = (one: string): Promise<string> => Promise.resolve(one);
  expect(await withEngineFolder(folder, { scratch }, path)).toBe(folder);
  writeFileSync(join(folder, 'config.json'), `\uFEFF${JSON.stringify(baseConfig)}`);
  const seen = await withEngineFolder(folder, { scratch }, (one) =>
    Promise.resolve({ one, config: JSON.parse(readFileSync(join(one, 'config.json'), 'utf8')) as unknown }),
  );
  expect(seen.config).toEqual(baseConfig);
  expect(seen.one).not.toBe(folder);
  await expect(
    withEngineFolder(folder, { scratch }, (one) => Promise.reject(new Error(`${one}/x is bad`))),
  ).rejects.toThrow(`${folder}/x is bad`);
  expect(() => statSync(seen.one)).toThrow(/ENOENT/);
});

test('values of every type become fp32, exactly', () => {
  const read = (dtype: StoredTensor['dtype'], bits: number[]): number[] => {
    const bytes = Buffer.from(new Uint16Array(bits).buffer);
    return [...floatsOf(bytes, { name: 'w', file: 'f', dtype, shape: [bits.length], start: 0, end: 0 })];
  };
  expect(read('BF16', [0x3f80, 0xc049, 0x0001])).toEqual([1, -3.140625, 2 ** -133]);
  expect(read('F16', [0x3c00, 0xc248, 0x0001, 0x8000, 0x7bff, 0x7c00, 0x0400])).toEqual([
    ...[1, -3.140625, 2 ** -24, -0, 65504, Infinity, 2 ** -14],
  ]);
  expect(() => read('I16', [1])).toThrow(/f: tensor w is I16; expected F32, F16 or BF16/);
});
