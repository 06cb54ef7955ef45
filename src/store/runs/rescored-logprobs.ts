// The trainer's log-probs of a batch, as the first process that computed them saw them. Servers promise no equal bits, so they are a choice:
// every process that applies the batch again uses the recorded ones. They are trained on, so the file holds a checksum, and the update
// names the file's sha256.
import { sha256Hex } from '../../base/sha256.js';
import type { Digest } from '../../spec/records/parts.js';
import { decodeSafetensors, encodeSafetensors } from '../files/safetensors.js';
import { rescoredKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { UnreadableRecord } from '../record-errors.js';

/** A batch of a step; `run`: the run whose folder holds the step. */
export interface StepBatch {
  run: string;
  step: number;
  batch: Digest;
}

export interface Rescored {
  /** [M], in the order of the batch's targets. */
  logprobs: Float32Array;
  /** sha256 of the file. */
  sha256: Digest;
}

/** Records the log-probs, and returns the recorded ones. Throws `UnreadableRecord` as `decodeRescored` does. */
export async function chooseRescored(
  store: ObjectStore,
  place: StepBatch,
  logprobs: Float32Array,
): Promise<Rescored> {
  const bytes = encodeRescored(place.batch, logprobs);
  if ((await store.create(keyOf(place), bytes)) === 'created') return { logprobs, sha256: sha256Hex(bytes) };
  return readRescored(store, place, logprobs.length);
}

/**
 * `targets`: number of targets in the batch, null if it cannot be read; `recorded`: the file's sha256 in update.json, if the update names it. Throws
 * `UnreadableRecord` if the file is missing, was changed, or has another number of log-probs.
 */
export async function readRescored(
  store: ObjectStore,
  place: StepBatch,
  targets: number | null,
  recorded?: Digest,
): Promise<Rescored> {
  const key = keyOf(place);
  const bytes = await store.get(key);
  if (!bytes) throw new UnreadableRecord(key, 'it is not in the store');
  const sha256 = sha256Hex(bytes);
  if (recorded !== undefined && sha256 !== recorded)
    throw new UnreadableRecord(key, 'its sha256 is not the one in update.json: it was changed');
  const logprobs = decodeRescored(bytes, key, place.batch);
  const { length } = logprobs;
  if (targets !== null && length !== targets)
    throw new UnreadableRecord(key, `it has ${length} log-probs, and the batch has ${targets} targets`);
  return { logprobs, sha256 };
}

export function encodeRescored(batch: Digest, logprobs: Float32Array): Uint8Array {
  const { buffer, byteOffset, byteLength } = logprobs;
  const metadata = { longhaul: batch, sha256: sha256Hex(new Uint8Array(buffer, byteOffset, byteLength)) };
  const tensor = { dtype: 'F32', shape: [logprobs.length], data: logprobs } as const;
  return encodeSafetensors({ metadata, tensors: { logprobs: tensor } });
}

/** Throws `UnreadableRecord` if the file belongs to another batch, or its content is not what its checksum says. */
function decodeRescored(bytes: Uint8Array, key: string, batch: Digest): Float32Array {
  const { metadata, logprobs } = contentOf(bytes, key);
  if (metadata['longhaul'] !== batch) throw new UnreadableRecord(key, 'it belongs to another batch');
  // All of the file follows from the batch and the log-probs, so each changed bit is noticed.
  if (Buffer.compare(encodeRescored(batch, logprobs), bytes) !== 0)
    throw new UnreadableRecord(key, 'its content does not match its sha256: it was changed');
  if (!logprobs.every((one) => Number.isFinite(one)))
    throw new UnreadableRecord(key, 'it has a log-prob that is not finite');
  return logprobs;
}

function contentOf(
  bytes: Uint8Array,
  key: string,
): { metadata: Record<string, string>; logprobs: Float32Array } {
  try {
    const { metadata, tensors } = decodeSafetensors(bytes);
    const data = tensors['logprobs']?.data;
    if (data instanceof Float32Array) return { metadata, logprobs: data };
  } catch (error) {
    throw new UnreadableRecord(key, (error as Error).message, { cause: error });
  }
  throw new UnreadableRecord(key, 'it has no tensor `logprobs` of type F32');
}

const keyOf = ({ run, step, batch }: StepBatch): string => rescoredKey(run, step, batch);
