import { mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { gpuOfNode } from '../../src/stack/process-plans.js';

const machine = (gpus: number): string => {
  const folder = mkdtempSync(join(tmpdir(), 'gpus-'));
  for (let gpu = 0; gpu < gpus; gpu += 1) mkdirSync(join(folder, `0000:0${gpu}:00.0`));
  return folder;
};
const ofThreeNodes = (env: NodeJS.ProcessEnv, folder: string) =>
  [0, 1, 2].map((index) => gpuOfNode(index, env, folder).CUDA_VISIBLE_DEVICES);

it('gives each node a GPU of its own, as far as there are GPUs', () => {
  expect(ofThreeNodes({}, machine(4))).toEqual(['0', '1', '2']);
  expect(ofThreeNodes({}, machine(2))).toEqual(['0', '1', '0']);
});

it('shares out only the GPUs that the environment names', () => {
  expect(ofThreeNodes({ CUDA_VISIBLE_DEVICES: '5,GPU-8932f937' }, machine(8))).toEqual([
    ...['5', 'GPU-8932f937', '5'],
  ]);
});

it('changes nothing with fewer than two GPUs', () => {
  const nothing = [undefined, undefined, undefined];
  expect(ofThreeNodes({}, machine(1))).toEqual(nothing);
  expect(ofThreeNodes({}, join(machine(0), 'none'))).toEqual(nothing);
  for (const named of ['', '3'])
    expect(ofThreeNodes({ CUDA_VISIBLE_DEVICES: named }, machine(8))).toEqual(nothing);
});
