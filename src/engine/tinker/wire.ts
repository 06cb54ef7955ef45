// What a Tinker server sends and takes as protobuf: passes over data, and the results of passes and samples. The rest is JSON.
// Field numbers: `tinker_public.proto` of the `tinker` SDK, 0.25 to 0.38. Servers before skyrl 0.4 speak JSON alone and are not served.
import protobuf from 'protobufjs';

/** One-dimensional, as every input of a loss is. */
interface Tensor {
  dtype: 'int64' | 'float32';
  data: readonly number[];
}

/** One sequence: its tokens, and what the loss takes for each of them. */
export interface Datum {
  tokens: readonly number[];
  /** `target_tokens`, `weights`, `logprobs`, `advantages`: each as long as `tokens`. */
  inputs: Readonly<Record<string, Tensor>>;
}

export interface PassRequest {
  model_id: string;
  /** Place in the model's sequence of training requests; absent with `forward_only`. */
  seq_id?: number;
  data: readonly Datum[];
  loss_fn: string;
  loss_fn_config?: Readonly<Record<string, number>>;
  /** Computes and returns all, and leaves no gradients. */
  forward_only?: boolean;
}

export interface PassResult {
  /** One entry a datum: arrays by name, `logprobs` among them. */
  outputs: Record<string, number[]>[];
  metrics: Record<string, number>;
}

export interface SampledSequence {
  stop: 'stop' | 'length';
  tokens: number[];
  logprobs: number[];
}

export class BadTinkerAnswer extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'BadTinkerAnswer';
  }
}

const string = (id: number) => ({ type: 'string', id });
const bytes = (id: number) => ({ type: 'bytes', id });
const messages = (id: number, type: string) => ({ rule: 'repeated', type, id });
const map = (id: number, type: string) => ({ keyType: 'string', type, id });

const { ForwardBackwardRequest, ForwardBackwardOutput, SampleResponse } = protobuf.Root.fromJSON({
  nested: {
    ForwardBackwardRequest: {
      fields: {
        modelId: string(1),
        seqId: { type: 'int32', id: 2 },
        data: messages(3, 'Datum'),
        lossFn: string(4),
        lossFnConfig: map(5, 'double'),
        forwardOnly: { type: 'bool', id: 6 },
      },
    },
    Datum: { fields: { modelInput: messages(1, 'Chunk'), lossFnInputs: map(2, 'Tensor') } },
    Chunk: { fields: { encodedText: { type: 'EncodedText', id: 1 } } },
    /** Little-endian int32. */
    EncodedText: { fields: { tokens: bytes(1) } },
    Tensor: {
      fields: {
        dense: bytes(1),
        dtype: { type: 'int32', id: 3 },
        shape: { rule: 'repeated', type: 'int64', id: 4 },
      },
    },
    ForwardBackwardOutput: {
      fields: { lossFnOutputs: messages(2, 'ArrayRecord'), metrics: map(3, 'double') },
    },
    ArrayRecord: { fields: { fields: map(2, 'BatchedTensor'), numDatums: { type: 'int64', id: 3 } } },
    /** `offsets`: int64 byte offsets of n + 1 ends of the datums' parts of `data`. */
    BatchedTensor: { fields: { data: bytes(1), offsets: bytes(2), dtype: { type: 'int32', id: 3 } } },
    SampleResponse: { fields: { sequences: messages(1, 'SampledSequence') } },
    SampledSequence: {
      fields: { stopReason: { type: 'int32', id: 1 }, tokens: bytes(2), logprobs: bytes(3) },
    },
  },
}).nested as Record<'ForwardBackwardRequest' | 'ForwardBackwardOutput' | 'SampleResponse', protobuf.Type>;

const float32 = 1;
const int64 = 2;
const int32 = 3;

export function encodePass(request: PassRequest): Uint8Array {
  const message = {
    modelId: request.model_id,
    ...(request.seq_id === undefined ? {} : { seqId: request.seq_id }),
    data: request.data.map(({ tokens, inputs }) => ({
      modelInput: [{ encodedText: { tokens: bytesOf(Int32Array.from(tokens)) } }],
      lossFnInputs: Object.fromEntries(
        Object.entries(inputs).map(([name, { dtype, data }]) => [
          name,
          {
            dense: bytesOf(dtype === 'int64' ? int64s(data) : Float32Array.from(data)),
            dtype: dtype === 'int64' ? int64 : float32,
            shape: [data.length],
          },
        ]),
      ),
    })),
    lossFn: request.loss_fn,
    lossFnConfig: request.loss_fn_config ?? {},
    ...(request.forward_only ? { forwardOnly: true } : {}),
  };
  return ForwardBackwardRequest.encode(ForwardBackwardRequest.create(message)).finish();
}

interface DecodedTensor {
  data: Uint8Array;
  offsets: Uint8Array;
  dtype: number;
}

/** Throws `BadTinkerAnswer`. */
export function decodePass(answer: Uint8Array): PassResult {
  const { lossFnOutputs, metrics } = decode(ForwardBackwardOutput, answer) as {
    lossFnOutputs: { fields: Record<string, DecodedTensor>; numDatums: string }[];
    metrics: Record<string, number>;
  };
  const outputs = lossFnOutputs.flatMap(({ fields, numDatums }) => {
    const arrays = Object.entries(fields).map(([name, tensor]) => [name, partsOf(name, tensor)] as const);
    return Array.from({ length: Number(numDatums) }, (_, index) =>
      Object.fromEntries(arrays.map(([name, parts]) => [name, parts[index] ?? []])),
    );
  });
  return { outputs, metrics };
}

/** Throws `BadTinkerAnswer`. */
export function decodeSamples(answer: Uint8Array): SampledSequence[] {
  const { sequences } = decode(SampleResponse, answer) as {
    sequences: { stopReason: number; tokens: Uint8Array; logprobs: Uint8Array }[];
  };
  return sequences.map(({ stopReason, tokens, logprobs }) => {
    const sampled = {
      stop: stopReason === 1 ? ('length' as const) : ('stop' as const),
      tokens: numbersOf('tokens', tokens, int32),
      logprobs: numbersOf('logprobs', logprobs, float32),
    };
    if (sampled.tokens.length !== sampled.logprobs.length)
      throw new BadTinkerAnswer(
        `a sample has ${sampled.tokens.length} tokens and ${sampled.logprobs.length} log-probs`,
      );
    return sampled;
  });
}

function decode(type: protobuf.Type, answer: Uint8Array): object {
  try {
    return type.toObject(type.decode(answer), { defaults: true, longs: String });
  } catch (error) {
    throw new BadTinkerAnswer(`a server's ${type.name} cannot be read: ${(error as Error).message}`);
  }
}

/** One array a datum. */
function partsOf(name: string, { data, offsets, dtype }: DecodedTensor): number[][] {
  const ends = numbersOf(`${name}'s offsets`, offsets, int64);
  return ends.slice(1).map((end, index) => {
    const start = ends[index] ?? 0;
    if (start > end || end > data.length)
      throw new BadTinkerAnswer(`${name} of datum ${index} is at bytes ${start} to ${end} of ${data.length}`);
    return numbersOf(name, data.subarray(start, end), dtype);
  });
}

const sizes: Record<number, number> = { [float32]: 4, [int64]: 8, [int32]: 4 };

/** The bytes of an answer are aligned to nothing. */
function numbersOf(name: string, data: Uint8Array, dtype: number): number[] {
  const size = sizes[dtype];
  if (size === undefined) throw new BadTinkerAnswer(`${name} has the unknown type ${dtype}`);
  if (data.length % size !== 0)
    throw new BadTinkerAnswer(`${name} has ${data.length} bytes, which is not a multiple of ${size}`);
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const numbers = new Array<number>(data.length / size);
  for (let index = 0, at = 0; at < data.length; index++, at += size)
    numbers[index] =
      dtype === float32
        ? view.getFloat32(at, true)
        : dtype === int32
          ? view.getInt32(at, true)
          : Number(view.getBigInt64(at, true));
  return numbers;
}

/** A loop is many times faster than `BigInt64Array.from(data, BigInt)`. */
function int64s(data: readonly number[]): BigInt64Array {
  const array = new BigInt64Array(data.length);
  for (let at = 0; at < data.length; at++) array[at] = BigInt(data[at] as number);
  return array;
}

function bytesOf(array: Int32Array | Float32Array | BigInt64Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
