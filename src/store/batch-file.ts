// The batch file (docs/engine-protocol.md): what one step's update sees, as a canonical safetensors file.
// It is a function of the plan and the episodes, so its sha256 is the batch's digest.
import { shardCount, type BatchArrays } from '../spec/batch.js';
import type { BatchIdentity, Digest } from '../spec/records.js';
import { canonicalText, differences, sha256Hex } from './canonical.js';
import { checkRecord } from './record-codec.js';
import { decodeSafetensors, encodeSafetensors, type Tensor } from './safetensors.js';
import { UnreadableRecord } from './store-errors.js';

const METADATA_KEY = 'longhaul';
const NODE_COLUMNS = 4;

/** Throws a TypeError on arrays that break the format: a batch that the engine would refuse is never sealed. */
export function encodeBatchFile(arrays: BatchArrays, identity: BatchIdentity): Uint8Array {
  const problem = batchProblem(arrays, identity);
  if (problem) throw new TypeError(`batch of step ${identity.step} of ${identity.run}: ${problem}`);
  const [nodes, tokens, targets] = [
    arrays.nodes.length / NODE_COLUMNS,
    arrays.tokens.length,
    arrays.target_rows.length,
  ];
  return encodeSafetensors({
    metadata: { [METADATA_KEY]: canonicalText(identity) },
    tensors: {
      nodes: { dtype: 'I32', shape: [nodes, NODE_COLUMNS], data: arrays.nodes },
      tokens: { dtype: 'I32', shape: [tokens], data: arrays.tokens },
      target_rows: { dtype: 'I32', shape: [targets], data: arrays.target_rows },
      target_tokens: { dtype: 'I32', shape: [targets], data: arrays.target_tokens },
      target_advantages: { dtype: 'F32', shape: [targets], data: arrays.target_advantages },
      target_old_logprobs: { dtype: 'F32', shape: [targets], data: arrays.target_old_logprobs },
      target_shards: { dtype: 'I32', shape: [targets, 2], data: arrays.target_shards },
    },
  });
}

/** Throws `UnreadableRecord` or `NewerSchema`, naming `key`. */
export function decodeBatchFile(
  bytes: Uint8Array,
  key: string,
): { identity: BatchIdentity; arrays: BatchArrays } {
  const { metadata, tensors } = asRecord(key, () => decodeSafetensors(bytes));
  const identity = identityOf(metadata, key);
  const arrays: BatchArrays = {
    nodes: int32(tensors, 'nodes', NODE_COLUMNS, key),
    tokens: int32(tensors, 'tokens', 1, key),
    target_rows: int32(tensors, 'target_rows', 1, key),
    target_tokens: int32(tensors, 'target_tokens', 1, key),
    target_advantages: float32(tensors, 'target_advantages', key),
    target_old_logprobs: float32(tensors, 'target_old_logprobs', key),
    target_shards: int32(tensors, 'target_shards', 2, key),
  };
  const problem = batchProblem(arrays, identity);
  if (problem) throw new UnreadableRecord(key, problem);
  return { identity, arrays };
}

/** `BatchIdentity.inputs`: of the digests of episodes in (slot, sample) order, or of demonstrations in the plan's. */
export function inputsDigest(digests: readonly Digest[]): Digest {
  return sha256Hex(digests.map((digest) => `${digest}\n`).join(''));
}

/** Where two batch files differ, in words; null where they are the same bytes. Throws as `decodeBatchFile` does. */
export function batchDifference(stored: Uint8Array, computed: Uint8Array, key: string): string | null {
  if (Buffer.compare(stored, computed) === 0) return null;
  const [a, b] = [decodeBatchFile(stored, key), decodeBatchFile(computed, key)];
  const found = differences(a.identity, b.identity);
  for (const name of Object.keys(a.arrays) as (keyof BatchArrays)[]) {
    const [stored, computed] = [a.arrays[name], b.arrays[name]];
    const at = Array.from(stored).findIndex((value, index) => !Object.is(value, computed[index]));
    const first = at >= 0 ? at : stored.length;
    if (first === stored.length && first === computed.length) continue;
    found.push(
      `${name}[${first}] (stored ${stored[first]} of ${stored.length}, computed ${computed[first]} of ${computed.length})`,
    );
  }
  return found.join('; ') || 'the same content lies in other bytes';
}

function identityOf(metadata: Record<string, string>, key: string): BatchIdentity {
  const text = metadata[METADATA_KEY];
  if (text === undefined) throw new UnreadableRecord(key, `its __metadata__ has no "${METADATA_KEY}"`);
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

/** What breaks the format, or null. */
function batchProblem(arrays: BatchArrays, identity: BatchIdentity): string | null {
  return nodesProblem(arrays, identity.mini_batches) ?? targetsProblem(arrays, identity);
}

function nodesProblem({ nodes, tokens }: BatchArrays, miniBatches: number): string | null {
  if (nodes.length % NODE_COLUMNS !== 0) return `nodes has ${nodes.length} items, not four a node`;
  let rows = 0;
  let place = 0;
  for (let i = 0; i * NODE_COLUMNS < nodes.length; i++) {
    const [parent, length, miniBatch, shard] = nodes.subarray(
      i * NODE_COLUMNS,
      (i + 1) * NODE_COLUMNS,
    ) as unknown as [number, number, number, number];
    if (length < 1) return `node ${i} has length ${length}`;
    if (miniBatch < 0 || miniBatch >= miniBatches)
      return `node ${i} is in mini-batch ${miniBatch} of ${miniBatches}`;
    if (shard < 0 || shard >= shardCount) return `node ${i} is in shard ${shard} of ${shardCount}`;
    if (miniBatch * shardCount + shard < place)
      return `node ${i} is out of order (mini-batch ${miniBatch}, shard ${shard})`;
    place = miniBatch * shardCount + shard;
    if (parent < -1 || parent >= i) return `node ${i} has parent ${parent}; a parent precedes its children`;
    if (parent >= 0 && placeOf(nodes, parent) !== place)
      return `node ${i} is not in the shard of its parent ${parent}`;
    rows += length;
  }
  return rows === tokens.length
    ? null
    : `its nodes have ${rows} tokens together, tokens has ${tokens.length}`;
}

function targetsProblem(arrays: BatchArrays, identity: BatchIdentity): string | null {
  const targets = arrays.target_rows.length;
  for (const [name, length] of Object.entries({
    target_tokens: arrays.target_tokens.length,
    target_advantages: arrays.target_advantages.length,
    target_old_logprobs: arrays.target_old_logprobs.length,
    target_shards: arrays.target_shards.length / 2,
  })) {
    if (length !== targets) return `${name} has ${length} rows, target_rows has ${targets}`;
  }
  const places = rowPlaces(arrays);
  const perMiniBatch = new Array<number>(identity.mini_batches).fill(0);
  let last = 0;
  for (let i = 0; i < targets; i++) {
    const row = arrays.target_rows[i] as number;
    const miniBatch = arrays.target_shards[2 * i] as number;
    const place = miniBatch * shardCount + (arrays.target_shards[2 * i + 1] as number);
    if (row < 0 || row >= places.length) return `target ${i} is predicted by row ${row} of ${places.length}`;
    if (places[row] !== place) return `target ${i} is not in the mini-batch and shard of its row ${row}`;
    if (place < last) return `target ${i} is out of order`;
    if (!Number.isFinite(arrays.target_advantages[i]) || !Number.isFinite(arrays.target_old_logprobs[i])) {
      return `target ${i} has an advantage or log-prob that is not finite`;
    }
    last = place;
    perMiniBatch[miniBatch] = (perMiniBatch[miniBatch] ?? 0) + 1;
  }
  return perMiniBatch.join() === identity.loss_tokens.join()
    ? null
    : `its mini-batches have ${perMiniBatch.join(', ')} targets, its identity says ${identity.loss_tokens.join(', ')}`;
}

/** For each row of `tokens`: mini-batch × 8 + shard. */
function rowPlaces({ nodes, tokens }: BatchArrays): Int32Array {
  const places = new Int32Array(tokens.length);
  let row = 0;
  for (let node = 0; node * NODE_COLUMNS < nodes.length; node++) {
    const end = row + (nodes[node * NODE_COLUMNS + 1] as number);
    places.fill(placeOf(nodes, node), row, end);
    row = end;
  }
  return places;
}

function placeOf(nodes: Int32Array, node: number): number {
  return (nodes[node * NODE_COLUMNS + 2] as number) * shardCount + (nodes[node * NODE_COLUMNS + 3] as number);
}
