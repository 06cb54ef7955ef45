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
const defaultPositions = 32_768;

/** `file`: the file's name for error messages. Throws `BadModelFolder`. */
export function outlineOf(config: Record<string, unknown>, file: string): ModelOutline {
  const type = config['model_type'];
  if (typeof type !== 'string' || !Object.hasOwn(supported, type)) {
    const known = Object.entries(supported).map(([name, also]) => `"${name}" (${also})`);
    throw bad(file, 'model_type', type, `one that is supported: ${known.join(', ')}`);
  }
  const whole = (key: 'vocab_size' | 'max_position_embeddings', otherwise?: number): number => {
    const value = config[key] ?? otherwise;
    if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
    throw bad(file, key, value, 'a whole number above 0');
  };
  return {
    model_type: type as keyof typeof supported,
    vocab_size: whole('vocab_size'),
    max_position_embeddings: whole('max_position_embeddings', defaultPositions),
  };
}

function bad(file: string, key: string, found: unknown, expected: string): BadModelFolder {
  const shown = found === undefined ? 'is missing' : `is ${JSON.stringify(found)?.slice(0, 80)}`;
  return new BadModelFolder(`${file}: ${key} ${shown}; expected ${expected}`);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
