// Reads the parts of a Hugging Face `config.json` that are needed before an engine loads the folder: they say whether the model is
// supported, and which limits its tokenizer and episodes must respect. The engine reads the rest and reports problems with it.

/**
 * Thrown if the engine does not support a model, or if one of the model's files is damaged. The message says what, where, and what would
 * work.
 */
export class BadModelFolder extends Error {
  override readonly name = 'BadModelFolder';
}

const supported = { qwen3: 'Qwen3, dense', qwen2: 'Qwen2 and Qwen2.5, dense' } as const;

export interface ModelOutline {
  model_type: keyof typeof supported;
  vocab_size: number;
  max_position_embeddings: number;
}

/** Default of Qwen3Config and Qwen2Config when the file omits it. */
export const defaultPositions = 32_768;

export type HfConfig = Record<string, unknown>;

/** Key of the type of the weights: transformers 4 writes the first, transformers 5 the second. If a file has both, transformers 5 uses the first. */
export const ropeKeys = ['rope_scaling', 'rope_parameters'];

/**
 * Multimodal models whose language model has a supported type. They have three positions for each token (M-RoPE); for text these are equal, and
 * the logits are then the same bits as those of that type (`test/models/multimodal.py`).
 */
const languageTypes: Readonly<Record<string, ModelOutline['model_type']>> = {
  ...{ qwen3_vl: 'qwen3', qwen3_vl_text: 'qwen3' },
  ...{ qwen2_5_vl: 'qwen2', qwen2_5_vl_text: 'qwen2', qwen2_vl: 'qwen2', qwen2_vl_text: 'qwen2' },
};

/** True if the language model's settings are in `text_config`, as in multimodal models. */
export function isNested(config: HfConfig): boolean {
  const isWhole = isSupported(config['model_type']) && (config['vocab_size'] ?? null) !== null;
  return isObject(config['text_config']) && !isWhole;
}

/** True if the language model is only a part of the folder's model; its tensors then have other names. */
export function isMultimodal(config: HfConfig): boolean {
  return isNested(config) || languageTypeOf(config) !== undefined;
}

function languageTypeOf({ model_type: type }: HfConfig): ModelOutline['model_type'] | undefined {
  return typeof type === 'string' && Object.hasOwn(languageTypes, type) ? languageTypes[type] : undefined;
}

/** The settings of the language model, from `text_config` if they are nested there. */
export function languageConfig(config: HfConfig): HfConfig {
  const own = isNested(config) ? nestedConfig(config) : config;
  const type = languageTypeOf(own);
  if (type === undefined) return own;
  const { architectures: _multimodal, ...rest } = own;
  for (const key of ropeKeys) {
    const rope = rest[key];
    if (isObject(rope))
      rest[key] = Object.fromEntries(Object.entries(rope).filter(([, value]) => value !== 'mrope'));
  }
  return { ...rest, model_type: type };
}

function nestedConfig(config: HfConfig): HfConfig {
  // transformers reads these from the outer config if the inner one omits them. A quantised model must stay one, so that it is refused.
  const shared = ['tie_word_embeddings', 'eos_token_id', 'quantization_config'];
  if (isSupported(config['model_type']) || languageTypeOf(config) !== undefined) shared.push('model_type');
  const outer = Object.fromEntries(shared.flatMap((key) => (key in config ? [[key, config[key]]] : [])));
  const inner = Object.entries(config['text_config'] as HfConfig).filter(([, value]) => value !== null);
  return { ...outer, ...Object.fromEntries(inner) };
}

function isSupported(type: unknown): type is ModelOutline['model_type'] {
  return typeof type === 'string' && Object.hasOwn(supported, type);
}

/**
 * `config`: the language model's; `where`: its file and place for error messages; `whole`: the file's content, if `config` is a part of it.
 * Throws `BadModelFolder`.
 */
export function outlineOf(config: HfConfig, where: string, whole: HfConfig = config): ModelOutline {
  const type = config['model_type'];
  if (!isSupported(type)) {
    const known = Object.entries(supported).map(([name, also]) => `"${name}" (${also})`);
    throw badSetting(
      where,
      'model_type',
      type,
      `one that is supported: ${known.join(', ')}${multimodalNote(whole, config)}`,
    );
  }
  const isPart = languageTypeOf(isNested(whole) ? nestedConfig(whole) : whole) !== undefined;
  if (isPart && !hasTheta(config))
    throw badSetting(
      where,
      'rope_theta',
      undefined,
      'a number: versions of transformers have different defaults',
    );
  return {
    model_type: type,
    vocab_size: wholeSetting(config, 'vocab_size', where),
    max_position_embeddings: wholeSetting(config, 'max_position_embeddings', where, defaultPositions),
  };
}

function hasTheta(config: HfConfig): boolean {
  const ropes = ropeKeys.map((key) => config[key]).filter(isObject);
  const byLayerType = ropes.flatMap((rope) => Object.values(rope)).filter(isObject);
  return [config, ...ropes, ...byLayerType].some(({ rope_theta: theta }) => (theta ?? null) !== null);
}

/** Parts of multimodal models, by the key of their settings. */
const otherParts = Object.entries({
  vision_config: 'image encoder',
  audio_config: 'audio encoder',
  thinker_config: 'thinker, which reads images and sound',
  talker_config: 'talker, which speaks',
});

/** For a multimodal model: what is not supported, and which folder would be. Empty for a text model. */
function multimodalNote(whole: HfConfig, { model_type: inner }: HfConfig): string {
  const name = whole['model_type'] ?? inner;
  const lacks = otherParts.flatMap(([key, part]) => (isObject(whole[key]) ? [`its ${part} (${key})`] : []));
  const isText = typeof name !== 'string' || !/_(vl|omni)(_|$)/.test(name);
  if (lacks.length === 0 && isText) return '';
  return (
    `. ${JSON.stringify(name)} is a multimodal model. Of such models, only a language model of a supported type is loaded` +
    `${lacks.length === 0 ? '' : `: not ${lacks.join(', nor ')}`}. ` +
    'Use the folder of a text model, such as Qwen/Qwen3-4B, or of Qwen2.5-VL or Qwen3-VL, dense, for its language model'
  );
}

/** A whole number above 0. As in transformers, null counts as missing. Throws `BadModelFolder`. */
export function wholeSetting(config: HfConfig, key: string, where: string, otherwise?: number): number {
  const value = config[key] ?? otherwise;
  if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
  throw badSetting(where, key, value, 'a whole number above 0');
}

/** `where`: file, and the key of the object in it that has the setting: `config.json: ` or `config.json: text_config.`. */
export function badSetting(where: string, key: string, found: unknown, expected: string): BadModelFolder {
  const shown = found === undefined ? 'is missing' : `is ${JSON.stringify(found)?.slice(0, 80)}`;
  return new BadModelFolder(`${where}${key} ${shown}; expected ${expected}`);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
