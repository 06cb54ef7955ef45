// Runs one update of the engine on samples that it has generated.
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sha256Hex } from '../../src/base/sha256.js';
import type { FileEngine, UpdateRequest } from '../../src/engine/file-engine.js';
import type { GenerateResult } from '../../src/engine/policy-engine.js';
import { packForest } from '../../src/rl/packing.js';
import type { Digest } from '../../src/spec/records/parts.js';
import { encodeBatchFile } from '../../src/store/files/batch-file.js';
import { promptOf } from './quickstart-model.js';

const temperature = 1;

/** Runs one update on the generated samples, four samples a group. The samples' own log-probs are the old log-probs. */
export async function trainOn(
  engine: FileEngine,
  state: Digest,
  generated: readonly GenerateResult[],
  folder: string,
): Promise<{ state: Digest; metrics: Record<string, number>; tokens: number; milliseconds: number }> {
  const slots = Array.from({ length: Math.ceil(generated.length / 4) }, (_, slot) => slot);
  const forest = packForest([
    slots.flatMap((slot) => {
      const prompt = promptOf(slot);
      return generated.slice(slot * 4, slot * 4 + 4).map(({ tokens, logprobs }, sample) => ({
        tokens: [...prompt, ...tokens],
        targets: tokens.map((_, index) => ({
          index: prompt.length + index,
          advantage: sample % 2 === 0 ? 1 : -1,
          oldLogprob: logprobs[index] ?? 0,
        })),
      }));
    }),
  ]);
  const bytes = encodeBatchFile(forest, {
    ...{ schema: 'longhaul.batch/2', run: 'bench', step: 1, plan: sha256Hex('plan'), previous_state: state },
    ...{ inputs: sha256Hex('inputs'), mini_batches: 1, loss_tokens: [forest.target_tokens.length] },
    ...{ outcomes: [], metrics: {} },
  });
  const batchSha256 = sha256Hex(bytes);
  const batchPath = join(folder, `${batchSha256}.safetensors`);
  await writeFile(batchPath, bytes);
  const request: UpdateRequest = {
    ...{ state, step_id: sha256Hex(`${state} ${batchSha256}`), batchPath, batchSha256, temperature },
    ...{ learning_rates: [2.5e-4], adam_betas: [0.9, 0.98], adam_eps: 1e-8, weight_decay: 0 },
    ...{ max_grad_norm: 1, reset_moments: false },
    loss: { kind: 'regular', reduction: 'token_mean', eps_clip_low: 0.2, eps_clip_high: 0.28 },
  };
  const begun = performance.now();
  const result = await engine.update(request);
  const milliseconds = performance.now() - begun;
  await rm(batchPath, { force: true });
  return { state: result.state, metrics: result.metrics, tokens: forest.tokens.length, milliseconds };
}
