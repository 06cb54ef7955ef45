// Schema of a run spec's model: where the weights come from, their shapes, and which of them are trained.
import { z } from 'zod';
import { count, name, positive, seed, text } from './fields.js';
import { defaultPositions } from './records/live-ranges.js';
import { engineNumerics } from './records/parts.js';

const multipleOf16 = z.int().min(16).multipleOf(16);

const yarn = z.strictObject({
  factor: z.number().min(1).max(1024).describe('factor by which the context is extended'),
  original_max_position_embeddings: count.describe('context length of the original training'),
  beta_fast: positive
    .exactOptional()
    .describe('frequencies with more turns over the original length do not change; absent: 32'),
  beta_slow: positive
    .exactOptional()
    .describe('frequencies with fewer turns are divided by `factor`; absent: 1'),
  attention_factor: positive
    .exactOptional()
    .describe('factor on rotated queries and keys; absent: 0.1 · ln(`factor`) + 1'),
});

const likeYarn = 'as in `architecture.yarn`';
const ropeScaling = z.strictObject({
  rope_type: z.literal('yarn').default('yarn').describe('the method'),
  type: z.literal('yarn').exactOptional().describe('older name of `rope_type`'),
  factor: yarn.shape.factor.describe(likeYarn),
  original_max_position_embeddings: count.exactOptional().describe('absent: the folder’s context'),
  beta_fast: yarn.shape.beta_fast.describe(likeYarn),
  beta_slow: yarn.shape.beta_slow.describe(likeYarn),
  attention_factor: yarn.shape.attention_factor.describe(likeYarn),
});

const architecture = z.strictObject({
  model_type: z.enum(['qwen3', 'qwen2']).exactOptional().describe('`qwen2` is Qwen2.5; absent: `qwen3`'),
  vocab_size: count.describe('vocabulary size, at least that of the tokenizer'),
  hidden_size: multipleOf16.describe('width of the residual stream'),
  intermediate_size: multipleOf16.describe('width of the feed-forward layers'),
  num_hidden_layers: count.describe('layers'),
  num_attention_heads: count.describe('query heads'),
  num_key_value_heads: count.describe('key and value heads; must divide the query heads'),
  head_dim: multipleOf16.describe('width of a head'),
  rms_norm_eps: positive.lt(1).default(1e-6).describe('epsilon of the norms'),
  rope_theta: z.number().gt(1).lt(1e12).default(1_000_000).describe('base of the rotary frequencies'),
  yarn: yarn.exactOptional().describe('extends the context with YaRN, applied at every length'),
  tie_word_embeddings: z.boolean().default(true).describe('output head and embedding share weights'),
  max_position_embeddings: count.default(defaultPositions).describe('longest transcript'),
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
  rank: count.max(1024).describe('rank of the adapters'),
  alpha: positive.describe('the adapters are scaled by `alpha` / `rank`'),
  targets: z
    .array(z.enum(loraTargets))
    .min(1)
    .default([...loraTargets])
    .describe('matrices that get adapters'),
  seed: seed.exactOptional().describe('seed of the adapters; absent: the run’s'),
});

/** Log-probs of equal weights on SkyRL's JAX backend lie up to 1e-6 apart. Not a default of the schema: specs of earlier versions stay as they are. */
export const defaultWeightsTolerance = 1e-5;

const served = z.strictObject({
  name: text.describe('name of the model on the server'),
  rank: count.max(1024).describe('rank of the adapters; only they are trained'),
  seed: seed.exactOptional().describe('seed of the adapters; absent: the run’s'),
  reduction: z
    .enum(['sum', 'sequence_mean'])
    .default('sum')
    .describe('how the server combines the losses of tokens; SkyRL’s JAX backend: `sequence_mean`'),
  numbered: z
    .boolean()
    .default(true)
    .describe(
      'whether the server executes a repeated training request only once; else a lost answer costs a reload',
    ),
  clips: z
    .boolean()
    .default(false)
    .describe('whether the server clips gradients; `longhaul doctor --tinker` finds out'),
  chunk_sequences: count.default(128).describe('most sequences of one request'),
  chunk_tokens: count.default(65_536).describe('most tokens of one request'),
  logprob_tolerance: positive
    .default(0.1)
    .describe(
      'largest mean difference between the trainer’s and the sampled log-probs of a batch that is trained on',
    ),
  weights_tolerance: positive
    .exactOptional()
    .describe(
      `mean difference between log-probs of equal weights on this server; absent: ${defaultWeightsTolerance}`,
    ),
});

export const model = z.strictObject({
  name: name.describe('name in checkpoint keys'),
  init: z.literal('random').default('random').describe('weights are drawn from the seed; not with `path`'),
  path: text.exactOptional().describe('[Hugging Face folder](guide/own-model.md); excludes `architecture`'),
  rope_scaling: ropeScaling
    .exactOptional()
    .describe('[YaRN](guide/own-model.md) with `path`; replaces that of `config.json`'),
  architecture: architecture
    .exactOptional()
    .describe('of a model with random weights, by the keys of `config.json`; excludes `path`'),
  initializer_range: positive.default(0.02).describe('standard deviation of random weights'),
  served: served.exactOptional().describe('a model on a Tinker server, instead of `path` and `architecture`'),
  numerics: z
    .enum(engineNumerics)
    .exactOptional()
    .describe(
      '[how nodes compute](engine.md#bf16): `bf16-sm90` as the tensor cores of an H100; absent: `cpu`, fp32',
    ),
  lora: lora.exactOptional().describe('trains LoRA adapters; absent: trains all weights'),
  moments: z
    .enum(['fp32', 'int8'])
    .default('fp32')
    .describe('format of the optimizer moments: 8 or 2 bytes per parameter'),
  tokenizer: text.exactOptional().describe('a `tokenizer.json`; absent: that in `path`'),
  chat_template: text.exactOptional().describe('a Jinja template; absent: that in `path`'),
});
