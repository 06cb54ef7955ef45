// The batch file (docs/engine-protocol.md): the input of one step's update, as a canonical safetensors file.
// It is a function of the plan and the episodes, and its sha256 is the batch's digest.
import type { BatchArrays } from '../../spec/records/batch.js';
import type { BatchIdentity } from '../../spec/records/update.js';
import type { Digest } from '../../spec/records/parts.js';
import { canonicalText, differences } from '../records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import { checkRecord } from '../records/record-codec.js';
import { decodeSafetensors, encodeSafetensors, type Tensor } from './safetensors.js';
import { UnreadableRecord } from '../record-errors.js';

const metadataKey = 'longhaul';
const nodeColumns = 3;

/** Throws a TypeError if the arrays break the format, so that no batch is sealed that the engine would refuse. */
export function encodeBatchFile(arrays: BatchArrays, identity: BatchIdentity): Uint8Array {
  const problem = batchProblem(arrays, identity);
  if (problem) throw new TypeError(`batch of step ${identity.step} of ${identity.run}: ${problem}`);
  const { nodes, target_old_logprobs: old, target_rollout_logprobs: rollout } = arrays;
  const ints = (data: Int32Array): Tensor => ({ dtype: 'I32', shape: [data.length], data });
  const floats = (data: Float32Array): Tensor => ({ dtype: 'F32', shape: [data.length], data });
  return encodeSafetensors({
    metadata: { [metadataKey]: canonicalText(identity) },
    tensors: {
      nodes: { dtype: 'I32', shape: [nodes.length / nodeColumns, nodeColumns], data: nodes },
      tokens: ints(arrays.tokens),
      target_rows: ints(arrays.target_rows),
      target_tokens: ints(arrays.target_tokens),
      target_samples: ints(arrays.target_samples),
      target_advantages: floats(arrays.target_advantages),
      ...(old ? { target_old_logprobs: floats(old) } : {}),
      ...(rollout ? { target_rollout_logprobs: floats(rollout) } : {}),
    },
  });
}

/** Throws `UnreadableRecord`, `OlderSchema` or `NewerSchema`, naming `key`. */
export function decodeBatchFile(
  bytes: Uint8Array,
  key: string,
): { identity: BatchIdentity; arrays: BatchArrays } {
  const { metadata, tensors } = asRecord(key, () => decodeSafetensors(bytes));
  const identity = identityOf(metadata, key);
  const arrays: BatchArrays = {
    nodes: int32(tensors, 'nodes', nodeColumns, key),
    tokens: int32(tensors, 'tokens', 1, key),
    target_rows: int32(tensors, 'target_rows', 1, key),
    target_tokens: int32(tensors, 'target_tokens', 1, key),
    target_samples: int32(tensors, 'target_samples', 1, key),
    target_advantages: float32(tensors, 'target_advantages', key),
    ...(tensors['target_old_logprobs']
      ? { target_old_logprobs: float32(tensors, 'target_old_logprobs', key) }
      : {}),
    ...(tensors['target_rollout_logprobs']
      ? { target_rollout_logprobs: float32(tensors, 'target_rollout_logprobs', key) }
      : {}),
  };
  const problem = batchProblem(arrays, identity);
  if (problem) throw new UnreadableRecord(key, problem);
  return { identity, arrays };
}

/**
 * `BatchIdentity.inputs`: digest over the digests of the episodes, in (slot, sample) order, or of the demonstrations, in the plan's order.
 */
export function inputsDigest(digests: readonly Digest[]): Digest {
  return sha256Hex(digests.map((digest) => `${digest}\n`).join(''));
}

/** Says where two batch files differ; null if their bytes are equal. Throws as `decodeBatchFile` does. */
export function batchDifference(stored: Uint8Array, computed: Uint8Array, key: string): string | null {
  if (Buffer.compare(stored, computed) === 0) return null;
  const [a, b] = [decodeBatchFile(stored, key), decodeBatchFile(computed, key)];
  const found = differences(a.identity, b.identity);
  const names = new Set([...Object.keys(a.arrays), ...Object.keys(b.arrays)]) as Set<keyof BatchArrays>;
  for (const name of names) {
    const stored: ArrayLike<number> = a.arrays[name] ?? [];
    const computed: ArrayLike<number> = b.arrays[name] ?? [];
    const at = Array.from(stored).findIndex((value, index) => !Object.is(value, computed[index]));
    const first = at >= 0 ? at : stored.length;
    if (first === stored.length && first === computed.length) continue;
    found.push(
      `${name}[${first}] (stored ${stored[first]} of ${stored.length}, computed ${computed[first]} of ${computed.length})`,
    );
  }
  return found.join('; ') || 'its content is right, but it is not stored in canonical form';
}

function identityOf(metadata: Record<string, string>, key: string): BatchIdentity {
  const text = metadata[metadataKey];
  if (text === undefined) throw new UnreadableRecord(key, `its __metadata__ has no "${metadataKey}"`);
  return checkRecord(
    key,
    'batch',
    asRecord(key, () => JSON.parse(text) as unknown),
  );
}

function asRecord<T>(key: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new UnreadableRecord(key, (error as Error).message, { cause: error });
  }
}

function int32(tensors: Record<string, Tensor>, name: string, columns: number, key: string): Int32Array {
  const tensor = tensors[name];
  const rank = columns === 1 ? 1 : 2;
  if (
    tensor?.dtype !== 'I32' ||
    tensor.shape.length !== rank ||
    (rank === 2 && tensor.shape[1] !== columns)
  ) {
    throw new UnreadableRecord(
      key,
      `it has no tensor ${name} of I32${rank === 2 ? ` with ${columns} columns` : ''}`,
    );
  }
  return tensor.data;
}

function float32(tensors: Record<string, Tensor>, name: string, key: string): Float32Array {
  const tensor = tensors[name];
  if (tensor?.dtype !== 'F32' || tensor.shape.length !== 1) {
    throw new UnreadableRecord(key, `it has no tensor ${name} of F32 with one dimension`);
  }
  return tensor.data;
}

/** Says what breaks the format; null if nothing does. */
function batchProblem(arrays: BatchArrays, identity: BatchIdentity): string | null {
  return nodesProblem(arrays, identity.mini_batches) ?? targetsProblem(arrays, identity);
}

function nodesProblem({ nodes, tokens }: BatchArrays, miniBatches: number): string | null {
  if (nodes.length % nodeColumns !== 0) return `nodes has ${nodes.length} items, not ${nodeColumns} a node`;
  let rows = 0;
  let place = 0;
  for (let i = 0; i * nodeColumns < nodes.length; i++) {
    const [parent, length, miniBatch] = nodes.subarray(i * nodeColumns, (i + 1) * nodeColumns) as unknown as [
      number,
      number,
      number,
    ];
    if (length < 1) return `node ${i} has length ${length}`;
    if (miniBatch < 0 || miniBatch >= miniBatches)
      return `node ${i} is in mini-batch ${miniBatch} of ${miniBatches}`;
    if (miniBatch < place) return `node ${i} is out of order (mini-batch ${miniBatch})`;
    place = miniBatch;
    if (parent < -1 || parent >= i)
      return `node ${i} has parent ${parent}; a parent must precede its children`;
    if (parent >= 0 && miniBatchOf(nodes, parent) !== place)
      return `node ${i} is not in the mini-batch of its parent ${parent}`;
    rows += length;
  }
  return rows === tokens.length
    ? null
    : `its nodes have ${rows} tokens together, but tokens has ${tokens.length}`;
}

function targetsProblem(arrays: BatchArrays, identity: BatchIdentity): string | null {
  const { target_rows, target_samples, target_advantages, target_old_logprobs, target_rollout_logprobs } =
    arrays;
  const targets = target_rows.length;
  if (!target_old_logprobs && !target_rollout_logprobs)
    return 'it has neither target_old_logprobs nor target_rollout_logprobs';
  for (const [name, array] of Object.entries({
    target_tokens: arrays.target_tokens,
    target_samples,
    target_advantages,
    target_old_logprobs,
    target_rollout_logprobs,
  })) {
    if (array && array.length !== targets)
      return `${name} has ${array.length} rows, but target_rows has ${targets}`;
  }
  const places = rowPlaces(arrays);
  const perMiniBatch = new Array<number>(identity.mini_batches).fill(0);
  let [place, sample] = [0, 0];
  for (let i = 0; i < targets; i++) {
    const row = target_rows[i] as number;
    if (row < 0 || row >= places.length) return `target ${i} is predicted by row ${row} of ${places.length}`;
    const [miniBatch, own] = [places[row] as number, target_samples[i] as number];
    if (miniBatch < place) return `target ${i} is out of order (mini-batch ${miniBatch})`;
    if (own < sample || own > sample + 1 || (i === 0 && own !== 0))
      return `target ${i} belongs to sample ${own}; samples must count up from 0`;
    if (i > 0 && own === sample && miniBatch !== place)
      return `target ${i} is in mini-batch ${miniBatch}, but the other targets of its sample ${own} are not`;
    const values = [target_advantages[i], target_old_logprobs?.[i] ?? 0, target_rollout_logprobs?.[i] ?? 0];
    if (!values.every((value) => Number.isFinite(value)))
      return `target ${i} has an advantage or log-prob that is not finite`;
    [place, sample] = [miniBatch, own];
    perMiniBatch[miniBatch] = (perMiniBatch[miniBatch] ?? 0) + 1;
  }
  return perMiniBatch.join() === identity.loss_tokens.join()
    ? null
    : `its mini-batches have ${perMiniBatch.join(', ')} targets, but its identity says ${identity.loss_tokens.join(', ')}`;
}

/** Index of the mini-batch of each row of `tokens`. */
function rowPlaces({ nodes, tokens }: BatchArrays): Int32Array {
  const places = new Int32Array(tokens.length);
  let row = 0;
  for (let node = 0; node * nodeColumns < nodes.length; node++) {
    const end = row + (nodes[node * nodeColumns + 1] as number);
    places.fill(miniBatchOf(nodes, node), row, end);
    row = end;
  }
  return places;
}

function miniBatchOf(nodes: Int32Array, node: number): number {
  return nodes[node * nodeColumns + 2] as number;
}
