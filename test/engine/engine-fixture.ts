// Shared by the engine's tests: real engines with a tiny model, and batch files for updates.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import {
  createNativeEngine,
  type NativeEngine,
  type NativeEngineOptions,
} from '../../src/engine/native/native-engine.js';
import type { RandomModel, UpdateRequest } from '../../src/engine/file-engine.js';
import type { GenerateRequest } from '../../src/engine/policy-engine.js';
import type { BatchArrays } from '../../src/spec/records/batch.js';
import type { Digest } from '../../src/spec/records/parts.js';
import { packForest, type SampleToPack } from '../../src/rl/packing.js';
import { encodeBatchFile } from '../../src/store/files/batch-file.js';
import { sha256Hex } from '../../src/base/sha256.js';
import { findEngine } from '../support/find-tools.js';

export const tinyModel: RandomModel = {
  architecture: {
    vocab_size: 96,
    hidden_size: 64,
    intermediate_size: 96,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 32,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    max_position_embeddings: 256,
  },
  initializer_range: 0.2,
  seed: 7,
};

/** The temporary folder of the running test. */
let folder: string | null = null;

/** Starts a real engine, which is closed at the end of the test. */
export function startEngine(options: Partial<NativeEngineOptions> = {}): NativeEngine {
  const engine = createNativeEngine({ binary: findEngine(), threads: 1, ...options });
  onTestFinished(() => engine.close());
  return engine;
}

/** A path in a folder that is removed at the end of the test. */
export function temporaryPath(name: string): string {
  if (folder === null) {
    const made = mkdtempSync(join(tmpdir(), 'longhaul-engine-'));
    folder = made;
    onTestFinished(() => {
      folder = null;
      rmSync(made, { recursive: true, force: true });
    });
  }
  return join(folder, name);
}

/** A transcript of `length` tokens that depends only on `seed`. */
export function transcript(length: number, seed = 1): number[] {
  return Array.from({ length }, (_, i) => (i * 37 + seed * 11 + ((i * seed) % 13)) % 96);
}

export function generation(
  state: Digest,
  tokens: number[],
  overrides: Partial<GenerateRequest> = {},
): GenerateRequest {
  return {
    state,
    tokens,
    key: { seed: 5, domain: 'train', step: 1, slot: 0, sample: 0 },
    temperature: 1,
    max_new_tokens: 24,
    stop_tokens: [],
    ...overrides,
  };
}

export interface UpdateShape {
  miniBatches?: number;
  /** Prompts in each mini-batch. */
  prompts?: number;
  /** Tokens of each answer to a prompt. */
  answers?: number[];
}

/** Writes a batch of prompts, each with its answers; returns the update that applies it. */
export function writeUpdate(
  state: Digest,
  step: number,
  { miniBatches = 2, prompts = 1, answers: lengths = [6, 4] }: UpdateShape = {},
): UpdateRequest {
  const group = (place: number): SampleToPack[] => {
    const prompt = transcript(9, step + 5 * place);
    return lengths.map((length, index) => ({
      tokens: [...prompt, ...transcript(length, step + 20 * (index + 1))],
      targets: Array.from({ length }, (_, i) => ({
        index: prompt.length + i,
        advantage: index % 2 === 0 ? 1 : -0.5,
        oldLogprob: -4,
      })),
    }));
  };
  const places = Array.from({ length: prompts }, (_, place) => place);
  const batch = Array.from({ length: miniBatches }, (_, miniBatch) =>
    places.flatMap((place) => group(miniBatch * prompts + place)),
  );
  return writeBatch(state, step, batch, packForest(batch));
}

/** Writes a batch file from `arrays`, the packed `batch` or a changed copy of it; returns the update that applies it. */
export function writeBatch(
  state: Digest,
  step: number,
  batch: readonly (readonly SampleToPack[])[],
  arrays: BatchArrays,
): UpdateRequest {
  const miniBatches = batch.length;
  const bytes = encodeBatchFile(arrays, {
    schema: 'longhaul.batch/2',
    run: 'test',
    step,
    plan: sha256Hex(`plan ${step}`),
    previous_state: state,
    inputs: sha256Hex(`inputs ${step}`),
    mini_batches: miniBatches,
    loss_tokens: batch.map((samples) => samples.reduce((sum, { targets }) => sum + targets.length, 0)),
    outcomes: [],
    metrics: {},
  });
  const batchSha256 = sha256Hex(bytes);
  const batchPath = temporaryPath(`batch-${step}-${batchSha256.slice(0, 8)}.safetensors`);
  writeFileSync(batchPath, bytes);
  return {
    state,
    step_id: sha256Hex(`step ${state} ${batchSha256}`),
    batchPath,
    batchSha256,
    learning_rates: Array.from({ length: miniBatches }, (_, i) => 1e-3 / (i + 1)),
    adam_betas: [0.9, 0.98],
    adam_eps: 1e-8,
    weight_decay: 0.01,
    max_grad_norm: 1,
    reset_moments: false,
    loss: { kind: 'regular', reduction: 'token_mean', eps_clip_low: 0.2, eps_clip_high: 0.28 },
    temperature: 1,
  };
}

/** Applies updates `from..to` in sequence; returns the last state. */
export async function applyUpdates(
  engine: NativeEngine,
  state: Digest,
  from: number,
  to: number,
): Promise<Digest> {
  let current = state;
  for (let step = from; step <= to; step += 1) {
    current = (await engine.update(writeUpdate(current, step))).state;
  }
  return current;
}
