import { describe, expect, test } from 'vitest';
import type { LoraTarget } from '../../src/spec/run-spec.js';
import { adapterCount, architectureOf, BadModelFolder, parameterCount } from '../../src/models/hf-config.js';

/** Of Qwen3-0.6B, as its folder has it. */
const qwen3 = {
  architectures: ['Qwen3ForCausalLM'],
  attention_bias: false,
  bos_token_id: 151643,
  eos_token_id: 151645,
  head_dim: 128,
  hidden_act: 'silu',
  hidden_size: 1024,
  initializer_range: 0.02,
  intermediate_size: 3072,
  max_position_embeddings: 40960,
  model_type: 'qwen3',
  num_attention_heads: 16,
  num_hidden_layers: 28,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-6,
  rope_scaling: null,
  rope_theta: 1_000_000,
  tie_word_embeddings: true,
  torch_dtype: 'bfloat16',
  use_sliding_window: false,
  vocab_size: 151936,
};
const qwen25 = {
  architectures: ['Qwen2ForCausalLM'],
  hidden_act: 'silu',
  hidden_size: 896,
  intermediate_size: 4864,
  max_position_embeddings: 32768,
  model_type: 'qwen2',
  num_attention_heads: 14,
  num_hidden_layers: 24,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  tie_word_embeddings: true,
  vocab_size: 151936,
};

const read = (config: object) => architectureOf(config as Record<string, unknown>, 'config.json');

describe('the architecture of a config.json', () => {
  test('of Qwen3 has the parameters that the model is known by', () => {
    const architecture = read(qwen3);
    expect(architecture).toMatchObject({ head_dim: 128, rope_theta: 1_000_000, tie_word_embeddings: true });
    expect(architecture).not.toHaveProperty('model_type');
    expect(parameterCount(architecture)).toBe(596_049_920);
    const untied = {
      hidden_size: 4096,
      intermediate_size: 12288,
      num_attention_heads: 32,
      num_hidden_layers: 36,
    };
    expect(parameterCount(read({ ...qwen3, ...untied, tie_word_embeddings: false }))).toBe(8_190_735_360);
  });

  test('has the adapters that PEFT counts', () => {
    const lora = (targets: LoraTarget[]) => adapterCount(read(qwen3), { rank: 8, alpha: 16, targets });
    // Of Qwen3-0.6B: 28 layers of 1024 wide, 2048 for queries, 1024 for keys, 3072 inside.
    expect(lora(['q_proj', 'v_proj'])).toBe(28 * 8 * (1024 + 2048 + 1024 + 1024));
    const inside = ['gate_proj', 'up_proj', 'down_proj'] as const;
    expect(lora(['q_proj', 'k_proj', 'v_proj', 'o_proj', ...inside])).toBe(5_046_272);
  });

  test('of Qwen2.5 has biases, and heads as wide as they fit', () => {
    const architecture = read(qwen25);
    expect(architecture).toMatchObject({ model_type: 'qwen2', head_dim: 64, num_key_value_heads: 2 });
    expect(parameterCount(architecture)).toBe(494_032_768);
  });

  test('is the same with the keys of new transformers', () => {
    const { rope_theta: _theta, rope_scaling: _scaling, torch_dtype: _dtype, ...rest } = qwen3;
    const renamed = {
      ...rest,
      dtype: 'bfloat16',
      rope_parameters: { rope_type: 'default', rope_theta: 1_000_000 },
    };
    expect(read(renamed)).toEqual(read(qwen3));
  });

  test('has YaRN, by old and by new keys', () => {
    const yarn = { factor: 4, original_max_position_embeddings: 32768 };
    const expected = { ...read(qwen3), yarn };
    expect(read({ ...qwen3, rope_scaling: { type: 'yarn', ...yarn } })).toEqual(expected);
    expect(read({ ...qwen3, rope_scaling: { rope_type: 'yarn', ...yarn } })).toEqual(expected);
    const { rope_theta, ...rest } = qwen3;
    const parameters = { rope_type: 'yarn', rope_theta, beta_fast: 16, attention_factor: 1.2, ...yarn };
    expect(read({ ...rest, rope_parameters: parameters })).toEqual({
      ...expected,
      yarn: { ...yarn, beta_fast: 16, attention_factor: 1.2 },
    });
  });

  test('is found by the class where the type is missing', () => {
    const { model_type: _type, ...rest } = qwen25;
    expect(read(rest)).toEqual(read(qwen25));
  });
});

describe('a model that the engine does not have is refused, naming the key, what was found and what is expected', () => {
  test.each<[string, object, RegExp]>([
    ['another family', { model_type: 'llama' }, /model_type is "llama"; expected .*"qwen3".*"qwen2"/],
    ['experts', { model_type: 'qwen3_moe' }, /model_type is "qwen3_moe"/],
    ['another activation', { hidden_act: 'gelu' }, /hidden_act is "gelu"; expected "silu"/],
    ['sliding windows', { use_sliding_window: true }, /use_sliding_window is true; expected false/],
    ['biases in Qwen3', { attention_bias: true }, /attention_bias is true/],
    ['quantized weights', { quantization_config: { bits: 4 } }, /quantization_config is \{"bits":4\}/],
    [
      'linear scaling',
      { rope_scaling: { rope_type: 'linear', factor: 2 } },
      /rope_scaling\.rope_type is "linear"/,
    ],
    ['YaRN without a factor', { rope_scaling: { rope_type: 'yarn' } }, /factor is missing/],
    [
      'a width that is text',
      { hidden_size: '1024' },
      /hidden_size is "1024"; expected a whole number above 0/,
    ],
    ['no width', { hidden_size: undefined }, /hidden_size is missing/],
    [
      'heads that do not divide',
      { num_key_value_heads: 5 },
      /num_key_value_heads is 5; expected a divisor of .* 16/,
    ],
    ['an epsilon of 0', { rms_norm_eps: 0 }, /rms_norm_eps is 0; expected a number above 0/],
  ])('%s', (_, change, message) => {
    expect(() => read({ ...qwen3, ...change })).toThrow(BadModelFolder);
    expect(() => read({ ...qwen3, ...change })).toThrow(message);
    expect(() => read({ ...qwen3, ...change })).toThrow(/^config\.json: /);
  });
});
