// Schema of a run spec's model: where the weights come from, their shapes, and which of them are trained.
import { z } from 'zod';
import { count, name, positive, seed, text } from './fields.js';

const multipleOf16 = z.int().min(16).multipleOf(16);

const yarn = z.strictObject({
  factor: z.number().min(1).max(1024).describe('how many times longer'),
  original_max_position_embeddings: count.describe('length it was trained for'),
  beta_fast: positive.exactOptional().describe('turns above which a frequency stays; absent: 32'),
  beta_slow: positive.exactOptional().describe('turns below which it is stretched; absent: 1'),
  attention_factor: positive
    .exactOptional()
    .describe('scale of the rotation; absent: 0.1 · ln(`factor`) + 1'),
});

const architecture = z.strictObject({
  model_type: z.enum(['qwen3', 'qwen2']).exactOptional().describe('`qwen2` is Qwen2.5; absent: `qwen3`'),
  vocab_size: count.describe('at least the tokenizer’s'),
  hidden_size: multipleOf16.describe('residual width'),
  intermediate_size: multipleOf16.describe('feed-forward width'),
  num_hidden_layers: count.describe('layers'),
  num_attention_heads: count.describe('query heads'),
  num_key_value_heads: count.describe('divides the query heads'),
  head_dim: multipleOf16.describe('head width'),
  rms_norm_eps: positive.lt(1).default(1e-6).describe('of norms'),
  rope_theta: z.number().gt(1).lt(1e12).default(1_000_000).describe('rotary base'),
  yarn: yarn.exactOptional().describe('YaRN, at every length'),
  tie_word_embeddings: z.boolean().default(true).describe('head and embedding are one'),
  max_position_embeddings: count.default(32_768).describe('longest transcript'),
});

/** Adapter targets in the order in which state files store them. */
export const loraTargets = [
  'q_proj',
  'k_proj',
  'v_proj',
  'o_proj',
  'gate_proj',
  'up_proj',
  'down_proj',
] as const;

const lora = z.strictObject({
  rank: count.max(1024).describe('width of the adapters'),
  alpha: positive.describe('scale is this over `rank`'),
  targets: z
    .array(z.enum(loraTargets))
    .min(1)
    .default([...loraTargets])
    .describe('layers with adapters'),
  seed: seed.exactOptional().describe('absent: the run’s'),
});

const served = z.strictObject({
  name: text.describe('as the server names it'),
  rank: count.max(1024).describe('width of the adapters, which alone are trained'),
  seed: seed.exactOptional().describe('of the adapters’ first values; absent: the run’s'),
  reduction: z
    .enum(['sum', 'sequence_mean'])
    .default('sum')
    .describe('how the server adds up the losses of tokens; `sequence_mean` is SkyRL’s JAX backend'),
  numbered: z
    .boolean()
    .default(true)
    .describe(
      'the server takes a training request that comes twice for one; if not, a lost answer costs a reload',
    ),
  clips: z.boolean().default(false).describe('the server clips gradients; `longhaul doctor` finds out'),
  chunk_sequences: count.default(128).describe('most sequences of one request'),
  chunk_tokens: count.default(65_536).describe('most tokens of one request'),
  logprob_tolerance: positive
    .default(0.1)
    .describe('largest mean distance of the trainer’s log-probs from the sampled ones that is trained on'),
});

export const model = z.strictObject({
  name: name.describe('name in checkpoint keys'),
  init: z.literal('random').default('random').describe('drawn from the seed, without `path`'),
  path: text.exactOptional().describe('[Hugging Face folder](guide/own-model.md); excludes `architecture`'),
  architecture: architecture
    .exactOptional()
    .describe('of random weights, by `config.json`’s keys; excludes `path`'),
  initializer_range: positive.default(0.02).describe('standard deviation of random weights'),
  served: served
    .exactOptional()
    .describe('a model of a Tinker server, in place of `path` and `architecture`'),
  lora: lora.exactOptional().describe('trains adapters; absent: all weights'),
  moments: z.enum(['fp32', 'int8']).default('fp32').describe('moments in 8 or 2 bytes a parameter'),
  tokenizer: text.exactOptional().describe('path of a `tokenizer.json`; absent: that of `path`'),
  chat_template: text.exactOptional().describe('path of a Jinja template; absent: that of `path`'),
});
