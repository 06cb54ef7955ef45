import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { BatchArrays } from '../../../src/spec/records/batch.js';
import { batchDifference, decodeBatchFile, encodeBatchFile } from '../../../src/store/files/batch-file.js';
import { decodeSafetensors, encodeSafetensors, type Tensor } from '../../../src/store/files/safetensors.js';
import { recordsOfAllKinds } from '../fixtures.js';

const tensor: fc.Arbitrary<Tensor> = fc.oneof(
  fc.int32Array({ maxLength: 9 }).map((data) => ({ dtype: 'I32', shape: [data.length], data }) as const),
  fc.float32Array({ maxLength: 9 }).map((data) => ({ dtype: 'F32', shape: [data.length, 1], data }) as const),
  fc.uint8Array({ maxLength: 9 }).map((data) => ({ dtype: 'U8', shape: [1, data.length], data }) as const),
  fc.bigInt64Array({ maxLength: 9 }).map((data) => ({ dtype: 'I64', shape: [data.length], data }) as const),
);
const file = fc.record({
  metadata: fc.dictionary(fc.string(), fc.string()),
  tensors: fc.dictionary(
    fc.string().filter((name) => name !== '__metadata__'),
    tensor,
  ),
});

const small = () =>
  encodeSafetensors({
    metadata: { b: '2', a: '1' },
    tensors: {
      z: { dtype: 'U8', shape: [3], data: Uint8Array.of(1, 2, 3) },
      a: { dtype: 'I32', shape: [2, 1], data: Int32Array.of(-1, 7) },
    },
  });

/** A file with the given header text and number of data bytes. */
function withHeader(text: string, dataBytes: number): Uint8Array {
  const header = Buffer.from(text);
  const bytes = Buffer.alloc(8 + header.length + dataBytes);
  bytes.writeBigUInt64LE(BigInt(header.length));
  header.copy(bytes, 8);
  return bytes;
}

describe('a safetensors file', () => {
  it('is read as it was written, with its data aligned to 8 bytes', () => {
    fc.assert(
      fc.property(file, (value) => {
        const bytes = encodeSafetensors(value);
        expect(new DataView(bytes.buffer).getBigUint64(0, true) % 8n).toBe(0n);
        const back = decodeSafetensors(bytes);
        expect({ ...back.metadata }).toEqual({ ...value.metadata });
        expect(Object.keys(back.tensors).sort()).toEqual(Object.keys(value.tensors).sort());
        for (const name of Object.keys(value.tensors))
          expect(back.tensors[name]).toEqual(value.tensors[name]);
        expect(encodeSafetensors(back)).toEqual(bytes);
      }),
      {
        examples: [
          [{ metadata: { ['__proto__']: '' }, tensors: {} }],
          [
            {
              metadata: {},
              tensors: { ['__proto__']: { dtype: 'I32', shape: [0], data: Int32Array.from([]) } },
            },
          ],
        ],
      },
    );
  });

  it('is read from a Buffer, at any offset in the Buffer’s memory', () => {
    const pooled = Buffer.concat([Buffer.from('odd'), small()]).subarray(3);
    expect(decodeSafetensors(pooled)).toEqual(decodeSafetensors(small()));
  });

  it('is sorted by name, in whatever order its tensors were given', () => {
    const header = Buffer.from(small()).subarray(8).toString('latin1').split(' ')[0]?.split('\0')[0];
    expect(header).toContain(
      '{"__metadata__":{"a":"1","b":"2"},"a":{"data_offsets":[0,8],"dtype":"I32","shape":[2,1]}',
    );
  });

  it.each([
    ['no header length', new Uint8Array(7), /header length alone needs 8/],
    ['a header longer than the file', withHeader('{}', 0).fill(0xff, 0, 4), /claims/],
    ['a header that is not an object', withHeader('[]', 0), /begin with/],
    ['broken JSON', withHeader('{"a":', 0), /not JSON/],
    [
      'an unknown dtype',
      withHeader('{"a":{"dtype":"Q7","shape":[1],"data_offsets":[0,4]}}', 4),
      /dtype "Q7"/,
    ],
    [
      'a prototype’s name for dtype',
      withHeader('{"a":{"dtype":"toString","shape":[],"data_offsets":[0,4]}}', 4),
      /dtype/,
    ],
    ['a negative shape', withHeader('{"a":{"dtype":"I32","shape":[-1],"data_offsets":[0,4]}}', 4), /shape/],
    [
      'a shape that overflows',
      withHeader('{"a":{"dtype":"I32","shape":[9007199254740991,9007199254740991],"data_offsets":[0,4]}}', 4),
      /needs/,
    ],
    [
      'offsets past the end',
      withHeader('{"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}', 4),
      /cut short: its tensors need 8 data bytes, but it has 4/,
    ],
    [
      'a size that does not match the shape',
      withHeader('{"a":{"dtype":"I32","shape":[2],"data_offsets":[0,4]}}', 4),
      /needs 8 bytes/,
    ],
    [
      'overlapping tensors',
      withHeader(
        '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}',
        6,
      ),
      /starts at byte 2/,
    ],
    [
      'a gap before a tensor',
      withHeader('{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2),
      /starts at byte 1/,
    ],
    ['bytes that no tensor has', withHeader('{}', 1), /end at byte 0, but it has 1 data bytes/],
    ['metadata that is not a string', withHeader('{"__metadata__":{"a":1}}', 0), /strings only/],
  ])('with %s is refused', (_, bytes, problem) => {
    expect(() => decodeSafetensors(bytes)).toThrow(problem);
  });

  it('with a changed byte is refused or read within its bounds; a file that was cut off is refused', () => {
    const bytes = small();
    fc.assert(
      fc.property(fc.nat(bytes.length - 1), fc.nat(255), (at, byte) => {
        const changed = bytes.slice();
        changed[at] = byte;
        try {
          decodeSafetensors(changed);
        } catch (error) {
          expect((error as Error).name).toBe('BadTensorFile');
        }
      }),
      { numRuns: 2000 },
    );
    for (let length = 0; length < bytes.length; length++) {
      expect(() => decodeSafetensors(bytes.subarray(0, length))).toThrow(/not a usable safetensors file/);
    }
  });
});

describe('a batch file', () => {
  const identity = recordsOfAllKinds().batch;
  /** A batch of two samples of one group; the first has two targets. */
  const arrays = (change: Partial<BatchArrays> = {}): BatchArrays => ({
    nodes: Int32Array.of(-1, 2, 0, 0, 2, 0, 0, 1, 0),
    tokens: Int32Array.of(1, 2, 3, 4, 5),
    target_rows: Int32Array.of(1, 2, 1),
    target_tokens: Int32Array.of(3, 4, 5),
    target_samples: Int32Array.of(0, 0, 1),
    target_advantages: Float32Array.of(1, 1, -1),
    target_old_logprobs: Float32Array.of(-0.5, -0.25, -2),
    ...change,
  });
  const two = { ...identity, mini_batches: 2, loss_tokens: [2, 1] };
  const apart = { nodes: Int32Array.of(-1, 3, 0, -1, 2, 1) };

  it('is read as it was written, and always has the same bytes', () => {
    const bytes = encodeBatchFile(arrays(), identity);
    expect(decodeBatchFile(bytes, 'k')).toEqual({ identity, arrays: arrays() });
    expect(encodeBatchFile(arrays(), identity)).toEqual(bytes);
  });

  it('may hold the log-probs at sampling in addition to the old ones', () => {
    const sampled = arrays({ target_rollout_logprobs: Float32Array.of(-0.5, -0.5, -2) });
    const bytes = encodeBatchFile(sampled, identity);
    expect(decodeBatchFile(bytes, 'k').arrays).toEqual(sampled);
    const plain = encodeBatchFile(arrays(), identity);
    expect(batchDifference(plain, bytes, 'k')).toMatch(
      /target_rollout_logprobs\[0\] \(stored undefined of 0/,
    );
  });

  it('may lack the old log-probs, which the engine then computes, but must have one of the two arrays', () => {
    const { target_old_logprobs: target_rollout_logprobs, ...rest } = arrays();
    const sampled = { ...rest, target_rollout_logprobs: target_rollout_logprobs! };
    expect(decodeBatchFile(encodeBatchFile(sampled, identity), 'k').arrays).toEqual(sampled);
    expect(() => encodeBatchFile(rest, identity)).toThrow(/neither target_old_logprobs nor target_rollout/);
  });

  it('of two mini-batches has all targets of the first before those of the second', () => {
    const sound = arrays({ ...apart, target_rows: Int32Array.of(0, 2, 3) });
    expect(decodeBatchFile(encodeBatchFile(sound, two), 'k').arrays).toEqual(sound);
  });

  it.each<[string, Partial<BatchArrays>, RegExp]>([
    ['a node before its parent', { nodes: Int32Array.of(1, 2, 0, -1, 3, 0) }, /parent must precede/],
    [
      'node lengths that do not add up to the number of tokens',
      { tokens: Int32Array.of(1, 2, 3, 4) },
      /5 tokens together/,
    ],
    ['an empty node', { nodes: Int32Array.of(-1, 5, 0, 0, 0, 0) }, /node 1 has length 0/],
    ['an incomplete node', { nodes: Int32Array.of(-1, 5) }, /2 items, not 3 a node/],
    ['a mini-batch index that is too large', { nodes: Int32Array.of(-1, 5, 1) }, /mini-batch 1 of 1/],
    ['a target row that does not exist', { target_rows: Int32Array.of(1, 2, 5) }, /row 5 of 5/],
    [
      'sample numbers that begin at 1',
      { target_samples: Int32Array.of(1, 1, 2) },
      /samples must count up from 0/,
    ],
    [
      'a sample number left out',
      { target_samples: Int32Array.of(0, 0, 2) },
      /belongs to sample 2; samples must count up/,
    ],
    [
      'a sample whose targets are not adjacent',
      { target_samples: Int32Array.of(0, 1, 0) },
      /belongs to sample 0; samples/,
    ],
    ['a shorter array of target tokens', { target_tokens: Int32Array.of(3, 4) }, /2 rows/],
    [
      'a shorter array of sample numbers',
      { target_samples: Int32Array.of(0, 0) },
      /target_samples has 2 rows/,
    ],
    [
      'an old log-prob that is not finite',
      { target_old_logprobs: Float32Array.of(-1, NaN, 0) },
      /not finite/,
    ],
    [
      'a log-prob at sampling that is not finite',
      { target_rollout_logprobs: Float32Array.of(-1, 0, Infinity) },
      /not finite/,
    ],
  ])('with %s is never written', (_, change, problem) => {
    expect(() => encodeBatchFile(arrays(change), identity)).toThrow(problem);
  });

  it.each<[string, Partial<BatchArrays>, RegExp]>([
    [
      'nodes not ordered by mini-batch',
      { nodes: Int32Array.of(-1, 2, 1, -1, 3, 0) },
      /node 1 is out of order/,
    ],
    [
      'a child in another mini-batch than its parent',
      { nodes: Int32Array.of(-1, 2, 0, 0, 3, 1) },
      /mini-batch of its parent 0/,
    ],
    [
      'targets not ordered by mini-batch',
      { ...apart, target_rows: Int32Array.of(3, 4, 0) },
      /target 2 is out of order/,
    ],
    [
      'a sample with targets in both',
      { ...apart, target_rows: Int32Array.of(0, 3, 4) },
      /the other targets of its sample 0/,
    ],
  ])('of two mini-batches with %s is never written', (_, change, problem) => {
    expect(() => encodeBatchFile(arrays(change), two)).toThrow(problem);
  });

  it('of an earlier version is refused by an error that names the version', () => {
    const bytes = encodeBatchFile(arrays(), identity);
    const text = Buffer.from(bytes).toString('latin1').replace('longhaul.batch/2', 'longhaul.batch/1');
    expect(() => decodeBatchFile(Buffer.from(text, 'latin1'), 'runs/x/batch')).toThrow(
      /runs\/x\/batch has schema longhaul\.batch\/1: an earlier version/,
    );
  });

  it('whose identity names another number of targets is never written', () => {
    expect(() => encodeBatchFile(arrays(), { ...identity, loss_tokens: [4] })).toThrow(/3 targets.*says 4/);
  });

  it('that was changed or cut off is unreadable, and the error names its key', () => {
    const bytes = encodeBatchFile(arrays(), identity);
    const text = Buffer.from(bytes).toString('latin1').replace('\\"step\\":1', '\\"step\\":0');
    expect(() => decodeBatchFile(Buffer.from(text, 'latin1'), 'runs/x/batch')).toThrow(
      /runs\/x\/batch is unreadable: step/,
    );
    expect(() => decodeBatchFile(bytes.subarray(0, 100), 'runs/x/batch')).toThrow(
      /runs\/x\/batch is unreadable/,
    );
  });
});
