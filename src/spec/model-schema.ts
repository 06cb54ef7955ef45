// The model of a run spec: where its weights come from, their shapes, and which of them are trained.
import { z } from 'zod';
import { count, name, positive, seed, text } from './fields.js';
import type { LoraTarget } from './run-spec.js';

const multipleOf16 = z.int().min(16).multipleOf(16);

const yarn = z.strictObject({
  factor: z.number().min(1).max(1024).describe('how many times longer contexts become'),
  original_max_position_embeddings: count.describe('tokens that the model was made for'),
  beta_fast: positive.exactOptional().describe('turns of a frequency above which it stays; absent: 32'),
  beta_slow: positive
    .exactOptional()
    .describe('turns of a frequency below which it is stretched whole; absent: 1'),
  attention_factor: positive
    .exactOptional()
    .describe('scale of the rotation; absent: 0.1 · ln(`factor`) + 1'),
});

const architecture = z.strictObject({
  model_type: z
    .enum(['qwen3', 'qwen2'])
    .exactOptional()
    .describe('`qwen3` normalises queries and keys, `qwen2` (Qwen2.5) has biases there; absent: `qwen3`'),
  vocab_size: count.describe('tokens; at least as many as the tokenizer has'),
  hidden_size: multipleOf16.describe('width of the residual stream'),
  intermediate_size: multipleOf16.describe('width of the feed-forward layers'),
  num_hidden_layers: count.describe('layers'),
  num_attention_heads: count.describe('query heads'),
  num_key_value_heads: count.describe('key and value heads; divides the query heads'),
  head_dim: multipleOf16.describe('width of one head'),
  rms_norm_eps: positive.lt(1).default(1e-6).describe('added to the mean square of a norm'),
  rope_theta: z.number().gt(1).lt(1e12).default(1_000_000).describe('base of the rotary embedding'),
  yarn: yarn.exactOptional().describe('longer contexts by YaRN, at every length'),
  tie_word_embeddings: z.boolean().default(true).describe('the output layer shares the embedding'),
  max_position_embeddings: count.default(32_768).describe('tokens; longest transcript that the model takes'),
});

/** In the order in which they stand in files. */
export const loraTargets = [
  'q_proj',
  'k_proj',
  'v_proj',
  'o_proj',
  'gate_proj',
  'up_proj',
  'down_proj',
] as const satisfies readonly LoraTarget[];

const lora = z.strictObject({
  rank: count.max(1024).describe('width of the adapters'),
  alpha: positive.describe('adapters are scaled by this over `rank`'),
  targets: z
    .array(z.enum(loraTargets))
    .min(1)
    .default([...loraTargets])
    .describe('linear layers that have adapters, in every block'),
  seed: seed.exactOptional().describe('of the first adapters; absent: the run’s'),
});

export const model = z.strictObject({
  name: name.describe('name in checkpoint keys'),
  init: z
    .literal('random')
    .default('random')
    .describe('weights drawn from the seed, where no `path` is given'),
  path: text
    .exactOptional()
    .describe(
      'Hugging Face folder of a Qwen3 or Qwen2.5 model, relative to the spec file; excludes `architecture`',
    ),
  architecture: architecture
    .exactOptional()
    .describe('of random weights, in the keys of Hugging Face’s `config.json`; excludes `path`'),
  initializer_range: positive.default(0.02).describe('standard deviation of random weights'),
  lora: lora.exactOptional().describe('trains adapters beside frozen weights; absent: trains all weights'),
  moments: z
    .enum(['fp32', 'int8'])
    .default('fp32')
    .describe('how the optimizer keeps its moments: in 8 or in 2 bytes a parameter'),
  tokenizer: text
    .exactOptional()
    .describe(
      'path of a Hugging Face `tokenizer.json`, relative to the spec file; needed without `path`, whose own is used where it is absent',
    ),
  chat_template: text
    .exactOptional()
    .describe(
      'path of a Jinja chat template, relative to the spec file; needed without `path`, whose own is used where it is absent',
    ),
});
