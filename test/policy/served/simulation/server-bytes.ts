// The protobuf of the Tinker API as a server reads and writes it, by field numbers.
import protobuf from 'protobufjs';
import type { Sequence } from './adapters.js';

export interface Pass {
  model: string;
  /** Absent: the request has no number. */
  number?: number;
  sequences: Sequence[];
  forwardOnly: boolean;
}

/** Schedules send the same few sequences again and again. By bytes, as latin1. */
const known = new Map<string, Sequence>();
const mostKnown = 20_000;

export function readPass(bytes: Uint8Array): Pass {
  const pass: Pass = { model: '', sequences: [], forwardOnly: false };
  fieldsOf(bytes, (field, reader) => {
    if (field === 1) pass.model = reader.string();
    else if (field === 2) pass.number = reader.int32();
    else if (field === 3) pass.sequences.push(readSequence(reader.bytes()));
    else if (field === 6) pass.forwardOnly = reader.bool();
    else return false;
    return true;
  });
  return pass;
}

function readSequence(bytes: Uint8Array): Sequence {
  const text = latin1Of(bytes);
  const found = known.get(text);
  if (found) return found;
  if (known.size >= mostKnown) known.clear();
  const sequence = sequenceOf(bytes);
  known.set(text, sequence);
  return sequence;
}

export function latin1Of({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('latin1');
}

function sequenceOf(bytes: Uint8Array): Sequence {
  let tokens: number[] = [];
  const inputs: Record<string, number[]> = {};
  fieldsOf(bytes, (field, reader) => {
    if (field === 1) tokens = tokensOf(reader.bytes());
    else {
      let name = '';
      fieldsOf(reader.bytes(), (part, entry) => {
        if (part === 1) name = entry.string();
        else inputs[name] = tensorOf(entry.bytes());
        return true;
      });
    }
    return true;
  });
  const { target_tokens: targets = [], weights = [], advantages, logprobs } = inputs;
  return {
    ...{ tokens, targets, weights },
    ...(advantages === undefined ? {} : { advantages }),
    ...(logprobs === undefined ? {} : { old: logprobs }),
  };
}

/** A chunk holds an encoded text, which holds the tokens. */
function tokensOf(chunk: Uint8Array): number[] {
  let tokens: number[] = [];
  fieldsOf(chunk, (_, outer) => {
    fieldsOf(outer.bytes(), (_, inner) => {
      tokens = [...new Int32Array(Uint8Array.from(inner.bytes()).buffer)];
      return true;
    });
    return true;
  });
  return tokens;
}

function tensorOf(bytes: Uint8Array): number[] {
  let dense = new Uint8Array();
  let dtype = 1;
  fieldsOf(bytes, (field, reader) => {
    if (field === 1) dense = Uint8Array.from(reader.bytes());
    else if (field === 3) dtype = reader.int32();
    else return false;
    return true;
  });
  return dtype === 1 ? [...new Float32Array(dense.buffer)] : [...new BigInt64Array(dense.buffer)].map(Number);
}

/** `read`: false if it does not want the field. */
function fieldsOf(bytes: Uint8Array, read: (field: number, reader: protobuf.Reader) => boolean): void {
  const reader = protobuf.Reader.create(bytes);
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if (!read(tag >>> 3, reader)) reader.skipType(tag & 7);
  }
}

const bytesOf = (array: Float32Array | Int32Array | BigInt64Array): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

/** `outputs`: log-probs by sequence. */
export function writePass(outputs: readonly number[][]): Uint8Array {
  const ends = [0n];
  for (const { length } of outputs) ends.push((ends.at(-1) as bigint) + 4n * BigInt(length));
  const tensor = protobuf.Writer.create()
    .uint32(10)
    .bytes(bytesOf(Float32Array.from(outputs.flat())))
    .uint32(18)
    .bytes(bytesOf(BigInt64Array.from(ends)))
    .uint32(24)
    .int32(1)
    .finish();
  const entry = protobuf.Writer.create().uint32(10).string('logprobs').uint32(18).bytes(tensor).finish();
  const record = protobuf.Writer.create().uint32(18).bytes(entry).uint32(24).int64(outputs.length).finish();
  return protobuf.Writer.create().uint32(18).bytes(record).finish();
}

export function writeSample(tokens: readonly number[], logprobs: readonly number[]): Uint8Array {
  const sequence = protobuf.Writer.create()
    .uint32(8)
    .int32(1)
    .uint32(18)
    .bytes(bytesOf(Int32Array.from(tokens)))
    .uint32(26)
    .bytes(bytesOf(Float32Array.from(logprobs)));
  return protobuf.Writer.create().uint32(10).bytes(sequence.finish()).finish();
}
