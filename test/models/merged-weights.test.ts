// An adapter is added in blocks, for speed. The bits are those of the plain sum.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { writeMerged } from '../../src/models/merged-weights.js';
import { tensorsIn, type StoredTensor } from '../../src/models/tensor-file.js';
import { uniform } from '../../src/rl/random.js';
import { decodeSafetensors, encodeSafetensors, type Tensor } from '../../src/store/files/safetensors.js';
import { ownFolder } from '../support/scratch-folder.js';

const matrix = (name: string, rows: number, columns: number): Tensor => ({
  dtype: 'F32',
  shape: [rows, columns],
  data: Float32Array.from({ length: rows * columns }, (_, i) => uniform(name, i) - 0.5),
});
const dataOf = ({ data }: Tensor): Float32Array => data as Float32Array;

/** One product after another, in double precision, rounded once. */
function plainSum(w: Tensor, a: Tensor, b: Tensor, scale: number): Float32Array {
  const [rows, columns] = w.shape as [number, number];
  const rank = a.shape[0] as number;
  const sums = Float64Array.from({ length: rows * columns }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    let sum = 0;
    for (let k = 0; k < rank; k++)
      sum += (dataOf(b)[row * rank + k] as number) * (dataOf(a)[k * columns + column] as number);
    return sum;
  });
  return Float32Array.from(dataOf(w), (value, i) => value + scale * (sums[i] as number));
}

test.each([
  [1, 1, 1],
  [2, 3, 5],
  [7, 33, 3],
  [8, 16, 4],
  [5, 21, 6],
  [64, 40, 16],
  // Several pieces, each with an odd number of rows.
  [37, 4099, 1029],
])(
  'the bits of %d rows and %d columns of rank %d are those of the plain sum',
  async (rows, columns, rank) => {
    const folder = ownFolder();
    const [w, a, b] = [matrix('w', rows, columns), matrix('a', rank, columns), matrix('b', rows, rank)];
    if (rows > 2) dataOf(w)[columns] = Infinity;
    dataOf(b)[0] = -0;
    const from = join(folder, 'from');
    const untouched: Tensor = { dtype: 'U8', shape: [3], data: new Uint8Array([1, 127, 255]) };
    writeFileSync(from, encodeSafetensors({ metadata: {}, tensors: { w, a, b, untouched } }));
    const stored = Object.fromEntries((await tensorsIn(from)).map((one) => [one.name, one])) as Record<
      'w' | 'a' | 'b' | 'untouched',
      StoredTensor
    >;
    const to = join(folder, 'to');
    const scale = 1 / 3;
    await writeMerged(
      to,
      new Map([
        ['w', stored.w],
        ['untouched', stored.untouched],
      ]),
      new Map([['w', { a: stored.a, b: stored.b, scale }]]),
    );
    const merged = decodeSafetensors(readFileSync(to));
    const bits = (floats: Float32Array): Uint8Array => new Uint8Array(floats.slice().buffer);
    expect(bits(dataOf(merged.tensors['w'] as Tensor))).toEqual(bits(plainSum(w, a, b, scale)));
    expect(merged.tensors['untouched']).toMatchObject({ data: untouched.data });
  },
);
