// The settings of a folder's language model as the engine loads them. Unsupported settings are refused already here, because the engine would
// refuse them only later, on a node.
import { isDeepStrictEqual } from 'node:util';
import type { RopeScaling } from '../spec/run-spec.js';
import {
  badSetting,
  BadModelFolder,
  type HfConfig,
  isNested,
  isObject,
  languageConfig,
  type ModelOutline,
  outlineOf,
  ropeKeys,
  wholeSetting,
} from './hf-config.js';
import { ropeTypeOf, withContext } from './rope-scaling.js';

/** Place of the language model's settings for error messages: `config.json: ` or `config.json: text_config.`. */
export function settingsPlace(whole: HfConfig, file: string): string {
  return `${file}: ${isNested(whole) ? 'text_config.' : ''}`;
}

/**
 * The language model's config, with its whole context as `max_position_embeddings`. It is `whole` itself if nothing has to change. `whole`:
 * the content of `file`; `ropeScaling`: the run spec's, which replaces the config's. Throws `BadModelFolder`.
 */
export function modelConfig(whole: HfConfig, ropeScaling: RopeScaling | undefined, file: string): HfConfig {
  const where = settingsPlace(whole, file);
  const config = languageConfig(whole);
  // The family is checked first: for an unsupported family, errors about its settings would mislead.
  const { model_type } = outlineOf(config, where, whole);
  refuseVariants(config, model_type, where);
  if (ropeScaling === undefined) refuseOuterScaling(whole, config, file);
  const extended = withContext(config, ropeScaling, where);
  outlineOf(extended, where);
  return extended;
}

const classNames = { qwen3: 'Qwen3ForCausalLM', qwen2: 'Qwen2ForCausalLM' } as const;

/** Refuses settings under which a model computes something else than the engine does. */
function refuseVariants(config: HfConfig, type: ModelOutline['model_type'], where: string): void {
  const set = (key: string): unknown => config[key] ?? undefined;
  const refuse = (key: string, expected: string): never => {
    throw badSetting(where, key, set(key), expected);
  };
  const classes = set('architectures');
  if (classes !== undefined && !(Array.isArray(classes) && classes.includes(classNames[type])))
    refuse(
      'architectures',
      `["${classNames[type]}"]: only language models are trained, without heads for classes or scores`,
    );
  if (set('quantization_config') !== undefined)
    refuse(
      'quantization_config',
      'none: quantised weights cannot be trained; use the folder with the model’s F32, F16 or BF16 weights',
    );
  if ((set('hidden_act') ?? 'silu') !== 'silu') refuse('hidden_act', '"silu"');
  if ((set('use_sliding_window') ?? false) !== false)
    refuse(
      'use_sliding_window',
      'false: sliding windows are not supported, every token attends to all earlier ones',
    );
  const layers = set('layer_types') ?? [];
  if (!(Array.isArray(layers) && layers.every((layer) => layer === 'full_attention')))
    refuse('layer_types', 'only "full_attention": sliding windows are not supported');
  if (type === 'qwen3' && (set('attention_bias') ?? false) !== false)
    refuse('attention_bias', 'false: a Qwen3 with biases is not supported');
}

/** Refuses rope settings outside `text_config`: transformers ignores them, so that the model would silently have a shorter context. */
function refuseOuterScaling(whole: HfConfig, config: HfConfig, file: string): void {
  if (!isNested(whole)) return;
  for (const key of ropeKeys) {
    const outer = whole[key];
    if (!isObject(outer) || isDeepStrictEqual(outer, config[key])) continue;
    const types = [outer, ...Object.values(outer).filter(isObject)].map(ropeTypeOf);
    // M-RoPE is the default for text, and transformers 4 saves it in both places.
    if (types.every((type) => type === 'default' || type === 'mrope')) continue;
    throw new BadModelFolder(
      `${file}: ${key} is beside text_config, where it has no effect: move it into text_config, or remove it`,
    );
  }
}

/** Largest value of a size, and the number of which it must be a multiple. */
const sizes = {
  vocab_size: [1 << 20, 1],
  hidden_size: [1 << 16, 16],
  intermediate_size: [1 << 18, 16],
  num_hidden_layers: [1024, 1],
  num_attention_heads: [1024, 1],
  num_key_value_heads: [1024, 1],
  head_dim: [1024, 16],
} as const;

/** Shapes of the tensors of a model with this config, by name. Throws `BadModelFolder` if the engine has no model of these sizes. */
export function tensorShapes(config: HfConfig, where: string): Map<string, readonly number[]> {
  const size = (key: keyof typeof sizes, otherwise?: number): number => {
    const value = wholeSetting(config, key, where, otherwise);
    const [most, unit] = sizes[key];
    if (value > most) throw badSetting(where, key, value, `at most ${most}`);
    if (value % unit !== 0) throw badSetting(where, key, value, `a multiple of ${unit}`);
    return value;
  };
  const { model_type } = outlineOf(config, where);
  const [vocabulary, hidden] = [size('vocab_size'), size('hidden_size')];
  const [inner, layers] = [size('intermediate_size'), size('num_hidden_layers')];
  const heads = size('num_attention_heads');
  const pairs = size('num_key_value_heads', heads);
  if (heads % pairs !== 0)
    throw badSetting(where, 'num_key_value_heads', pairs, `a divisor of num_attention_heads, ${heads}`);
  // The default of Qwen3Config does not depend on the other sizes.
  const head = size('head_dim', model_type === 'qwen3' ? 128 : Math.floor(hidden / heads));
  const tied = config['tie_word_embeddings'] ?? false;
  if (typeof tied !== 'boolean') throw badSetting(where, 'tie_word_embeddings', tied, 'true or false');

  const shapes = new Map<string, readonly number[]>([
    ['model.embed_tokens.weight', [vocabulary, hidden]],
    ['model.norm.weight', [hidden]],
    ...(tied ? [] : [['lm_head.weight', [vocabulary, hidden]] as const]),
  ]);
  const [queries, keys] = [heads * head, pairs * head];
  const ofEachLayer: [string, number[]][] = [
    ['input_layernorm.weight', [hidden]],
    ['post_attention_layernorm.weight', [hidden]],
    ['self_attn.q_proj.weight', [queries, hidden]],
    ['self_attn.k_proj.weight', [keys, hidden]],
    ['self_attn.v_proj.weight', [keys, hidden]],
    ['self_attn.o_proj.weight', [hidden, queries]],
    ['mlp.gate_proj.weight', [inner, hidden]],
    ['mlp.up_proj.weight', [inner, hidden]],
    ['mlp.down_proj.weight', [hidden, inner]],
    ...(model_type === 'qwen3'
      ? ([
          ['self_attn.q_norm.weight', [head]],
          ['self_attn.k_norm.weight', [head]],
        ] satisfies [string, number[]][])
      : ([
          ['self_attn.q_proj.bias', [queries]],
          ['self_attn.k_proj.bias', [keys]],
          ['self_attn.v_proj.bias', [keys]],
        ] satisfies [string, number[]][])),
  ];
  for (let layer = 0; layer < layers; layer += 1)
    for (const [name, shape] of ofEachLayer) shapes.set(`model.layers.${layer}.${name}`, shape);
  return shapes;
}
