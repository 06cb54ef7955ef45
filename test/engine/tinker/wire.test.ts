// The protobuf of the Tinker API: bytes from outside are read, or refused by name.
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, it } from 'vitest';
import { BadTinkerAnswer, decodePass, decodeSamples, encodePass } from '../../../src/engine/tinker/wire.js';

const floats = (...values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);
const ints = (...values: number[]): Uint8Array => new Uint8Array(Int32Array.from(values).buffer);
const longs = (...values: number[]): Uint8Array => new Uint8Array(BigInt64Array.from(values, BigInt).buffer);

/** Written by field numbers, as another program would. */
function sequence(stop: number, tokens: Uint8Array, logprobs: Uint8Array): Uint8Array {
  const inner = protobuf.Writer.create()
    .uint32(8)
    .int32(stop)
    .uint32(18)
    .bytes(tokens)
    .uint32(26)
    .bytes(logprobs);
  return protobuf.Writer.create().uint32(10).bytes(inner.finish()).finish();
}

function pass(offsets: Uint8Array, data: Uint8Array, datums: number): Uint8Array {
  const tensor = protobuf.Writer.create()
    .uint32(10)
    .bytes(data)
    .uint32(18)
    .bytes(offsets)
    .uint32(24)
    .int32(1)
    .finish();
  const entry = protobuf.Writer.create().uint32(10).string('logprobs').uint32(18).bytes(tensor).finish();
  const record = protobuf.Writer.create().uint32(18).bytes(entry).uint32(24).int64(datums).finish();
  return protobuf.Writer.create().uint32(18).bytes(record).finish();
}

describe('an answer', () => {
  it('is read by its field numbers', () => {
    expect(decodeSamples(sequence(1, ints(5, 7), floats(-0.5, -2)))).toEqual([
      { stop: 'length', tokens: [5, 7], logprobs: [-0.5, -2] },
    ]);
    expect(decodePass(pass(longs(0, 8, 12), floats(-1, -2, -3), 2)).outputs).toEqual([
      { logprobs: [-1, -2] },
      { logprobs: [-3] },
    ]);
  });

  it.each([
    ['as many log-probs as tokens', () => decodeSamples(sequence(0, ints(5, 7), floats(-0.5)))],
    ['parts within their data', () => decodePass(pass(longs(0, 8, 99), floats(-1, -2), 2))],
    ['whole numbers', () => decodeSamples(sequence(0, ints(5), Uint8Array.of(1, 2, 3)))],
  ])('without %s is refused', (_, read) => {
    expect(read).toThrow(BadTinkerAnswer);
  });

  it('of any bytes is read, or refused by name', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        for (const read of [decodePass, decodeSamples])
          try {
            read(bytes);
          } catch (error) {
            expect(error).toBeInstanceOf(BadTinkerAnswer);
          }
      }),
    );
  });
});

it('a request has the same bytes whoever sends it, and one that only asks for log-probs has no number', () => {
  const request = {
    ...{ model_id: 'm', loss_fn: 'cross_entropy' },
    data: [{ tokens: [1, 2], inputs: { target_tokens: { dtype: 'int64' as const, data: [2, 3] } } }],
  };
  const numbered = encodePass({ ...request, seq_id: 7 });
  expect(encodePass({ ...request, seq_id: 7 })).toEqual(numbered);
  const reader = protobuf.Reader.create(numbered);
  expect([reader.uint32(), reader.string(), reader.uint32(), reader.int32()]).toEqual([10, 'm', 16, 7]);
  expect(encodePass({ ...request, forward_only: true })).not.toEqual(encodePass(request));
});
