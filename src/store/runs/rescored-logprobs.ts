// The trainer's log-probs of a batch, as the first process that computed them saw them. Servers promise no equal bits, so they are a choice:
// every process that applies the batch again uses the recorded ones.
import type { Digest } from '../../spec/records/parts.js';
import { decodeSafetensors, encodeSafetensors } from '../files/safetensors.js';
import { rescoredKey } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { UnreadableRecord } from '../objects/store-errors.js';

/** `run`: the run whose folder holds the step. `logprobs` [M]. Returns the recorded ones. */
export async function chooseRescored(
  store: ObjectStore,
  { run, step, batch }: { run: string; step: number; batch: Digest },
  logprobs: Float32Array,
): Promise<Float32Array> {
  const key = rescoredKey(run, step, batch);
  const tensor = { dtype: 'F32', shape: [logprobs.length], data: logprobs } as const;
  const bytes = encodeSafetensors({ metadata: { longhaul: batch }, tensors: { logprobs: tensor } });
  if ((await store.create(key, bytes)) === 'created') return logprobs;
  const recorded = decoded(key, (await store.get(key)) ?? new Uint8Array());
  if (recorded.length === logprobs.length) return recorded;
  throw new UnreadableRecord(
    key,
    `it has ${recorded.length} log-probs, and the batch has ${logprobs.length} targets`,
  );
}

function decoded(key: string, bytes: Uint8Array): Float32Array {
  try {
    const data = decodeSafetensors(bytes).tensors['logprobs']?.data;
    if (data instanceof Float32Array) return data;
  } catch (error) {
    throw new UnreadableRecord(key, (error as Error).message);
  }
  throw new UnreadableRecord(key, 'it has no tensor `logprobs` of type F32');
}
