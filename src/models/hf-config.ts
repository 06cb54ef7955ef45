// The architecture that a Hugging Face `config.json` describes, with the keys of old and of new transformers.
import type { LoraSpec, LoraTarget, ModelArchitecture } from '../spec/run-spec.js';

type YarnSpec = NonNullable<ModelArchitecture['yarn']>;

/** A model that this engine cannot take, or a file of it that is damaged; says what, where, and what would do. */
export class BadModelFolder extends Error {
  override readonly name = 'BadModelFolder';
}

type Config = Record<string, unknown>;

/** By `model_type`: the architecture's class, and what else people call it. */
const supported = {
  qwen3: { className: 'Qwen3ForCausalLM', also: 'Qwen3, dense' },
  qwen2: { className: 'Qwen2ForCausalLM', also: 'Qwen2 and Qwen2.5, dense' },
} as const;
type ModelType = keyof typeof supported;

/** Of Qwen3Config and Qwen2Config, for keys that a file leaves out. */
const defaults = {
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  max_position_embeddings: 32_768,
  qwen3HeadDim: 128,
};

/** `file` names the source in errors. Throws `BadModelFolder`. */
export function architectureOf(config: Config, file: string): ModelArchitecture {
  const type = modelTypeOf(config, file);
  refuseWhatIsNotThere(config, type, file);
  const whole = (key: string, otherwise?: number): number => {
    const value = config[key] ?? otherwise;
    if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
    throw bad(file, key, value, 'a whole number above 0');
  };
  const heads = whole('num_attention_heads');
  const hidden = whole('hidden_size');
  const headDim = type === 'qwen3' ? defaults.qwen3HeadDim : Math.floor(hidden / heads);
  const groups = whole('num_key_value_heads', heads);
  if (heads % groups !== 0)
    throw bad(file, 'num_key_value_heads', groups, `a divisor of num_attention_heads, which is ${heads}`);
  const rope = ropeOf(config, file);
  return {
    ...(type === 'qwen3' ? {} : { model_type: type }),
    vocab_size: whole('vocab_size'),
    hidden_size: hidden,
    intermediate_size: whole('intermediate_size'),
    num_hidden_layers: whole('num_hidden_layers'),
    num_attention_heads: heads,
    num_key_value_heads: groups,
    head_dim: whole('head_dim', headDim),
    rms_norm_eps: number(config, 'rms_norm_eps', file, defaults.rms_norm_eps),
    rope_theta: rope.theta,
    ...(rope.yarn ? { yarn: rope.yarn } : {}),
    tie_word_embeddings: config['tie_word_embeddings'] === true,
    max_position_embeddings: whole('max_position_embeddings', defaults.max_position_embeddings),
  };
}

function modelTypeOf(config: Config, file: string): ModelType {
  const type = config['model_type'];
  if (typeof type === 'string' && Object.hasOwn(supported, type)) return type as ModelType;
  const [className] = Array.isArray(config['architectures']) ? (config['architectures'] as unknown[]) : [];
  const byClass = Object.entries(supported).find(([, one]) => one.className === className);
  if (type === undefined && byClass) return byClass[0] as ModelType;
  const known = Object.entries(supported).map(([name, one]) => `"${name}" (${one.also})`);
  throw bad(file, 'model_type', type ?? className, `one that is supported: ${known.join(', ')}`);
}

/** Settings that would change what the model computes, and that the engine does not have. */
function refuseWhatIsNotThere(config: Config, type: ModelType, file: string): void {
  const act = config['hidden_act'] ?? 'silu';
  if (act !== 'silu') throw bad(file, 'hidden_act', act, '"silu"');
  if (config['use_sliding_window'] === true) throw bad(file, 'use_sliding_window', true, 'false');
  if (type === 'qwen3' && config['attention_bias'] === true) throw bad(file, 'attention_bias', true, 'false');
  const quantized = config['quantization_config'];
  if (quantized !== undefined && quantized !== null)
    throw bad(
      file,
      'quantization_config',
      quantized,
      'absent: bring weights in bfloat16, float16 or float32',
    );
}

/** `rope_theta` and `rope_scaling` of old, `rope_parameters` of new transformers. */
function ropeOf(config: Config, file: string): { theta: number; yarn: YarnSpec | null } {
  const parameters = config['rope_parameters'];
  const key = isObject(parameters) ? 'rope_parameters' : 'rope_scaling';
  const scaling = isObject(parameters) ? parameters : config['rope_scaling'];
  const theta = isObject(parameters)
    ? number({ ...config, ...parameters }, 'rope_theta', file, defaults.rope_theta)
    : number(config, 'rope_theta', file, defaults.rope_theta);
  if (!isObject(scaling)) return { theta, yarn: null };
  const type = scaling['rope_type'] ?? scaling['type'] ?? 'default';
  if (type === 'default') return { theta, yarn: null };
  if (type !== 'yarn') throw bad(file, `${key}.rope_type`, type, '"default" or "yarn"');
  const optional = (name: 'beta_fast' | 'beta_slow' | 'attention_factor') =>
    scaling[name] === undefined || scaling[name] === null ? {} : { [name]: number(scaling, name, file) };
  const longest = scaling['original_max_position_embeddings'] ?? config['max_position_embeddings'];
  return {
    theta,
    yarn: {
      factor: number(scaling, 'factor', file),
      original_max_position_embeddings: number({ longest }, 'longest', file),
      ...optional('beta_fast'),
      ...optional('beta_slow'),
      ...optional('attention_factor'),
    },
  };
}

function number(object: Config, key: string, file: string, otherwise?: number): number {
  const value = object[key] ?? otherwise;
  if (typeof value === 'number' && Number.isFinite(value) && value > 0) return value;
  throw bad(file, key === 'longest' ? 'original_max_position_embeddings' : key, value, 'a number above 0');
}

function bad(file: string, key: string, found: unknown, expected: string): BadModelFolder {
  const shown = found === undefined ? 'is missing' : `is ${JSON.stringify(found)?.slice(0, 80)}`;
  return new BadModelFolder(`${file}: ${key} ${shown}; expected ${expected}`);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Of the adapters: A[rank, in] and B[out, rank] beside each target of each layer. */
export function adapterCount(architecture: ModelArchitecture, { rank, targets }: LoraSpec): number {
  const { hidden_size: hidden, intermediate_size: inner, num_hidden_layers, head_dim } = architecture;
  const query = architecture.num_attention_heads * head_dim;
  const keyValue = architecture.num_key_value_heads * head_dim;
  const inAndOut: Record<LoraTarget, number> = {
    q_proj: hidden + query,
    k_proj: hidden + keyValue,
    v_proj: hidden + keyValue,
    o_proj: query + hidden,
    gate_proj: hidden + inner,
    up_proj: hidden + inner,
    down_proj: inner + hidden,
  };
  return num_hidden_layers * rank * targets.reduce((sum, target) => sum + inAndOut[target], 0);
}

/** Values of a model's tensors, adapters left out. */
export function parameterCount(architecture: ModelArchitecture): number {
  const { vocab_size, hidden_size, intermediate_size, num_hidden_layers, head_dim } = architecture;
  const query = architecture.num_attention_heads * head_dim;
  const keyValue = architecture.num_key_value_heads * head_dim;
  const isQwen2 = architecture.model_type === 'qwen2';
  const attention =
    hidden_size * (2 * query + 2 * keyValue) + (isQwen2 ? query + 2 * keyValue : 2 * head_dim);
  const layer = attention + 3 * hidden_size * intermediate_size + 2 * hidden_size;
  const embeddings = vocab_size * hidden_size * (architecture.tie_word_embeddings ? 1 : 2);
  return embeddings + num_hidden_layers * layer + hidden_size;
}
