// Folders that no engine loads must be refused before a run starts, by the same rules.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { checkModelFiles } from '../../src/models/engine-folder.js';
import { BadModelFolder } from '../../src/models/hf-config.js';
import { modelConfig, tensorShapes } from '../../src/models/model-config.js';
import { decodeSafetensors, type Tensor } from '../../src/store/files/safetensors.js';
import { ownFolder } from '../support/scratch-folder.js';
import {
  baseConfig,
  baseTensors,
  writeAdapter,
  plainAdapter,
  adapterTensors,
  writeBase,
} from './foreign-folder.js';

const read = (config: object, scaling?: { rope_type: 'yarn'; factor: number }) =>
  modelConfig(config as Record<string, unknown>, scaling, 'config.json');
const nested = (inner: object, outer: object = {}) => ({
  ...{ model_type: 'llava_onevision', text_config: { ...baseConfig, ...inner } },
  ...outer,
});

describe('a config of another model than the engine computes', () => {
  const gptq = { quant_method: 'gptq', bits: 4 };
  test.each<[object, string]>([
    [{ quantization_config: gptq }, 'quantization_config is {"quant_method":"gptq","bits":4}; expected none'],
    [{ use_sliding_window: true }, 'use_sliding_window is true; expected false'],
    [{ layer_types: ['full_attention', 'sliding_attention'] }, 'layer_types is ["full_attention","sliding'],
    [
      { layer_types: 'sliding_attention' },
      'layer_types is "sliding_attention"; expected only "full_attention"',
    ],
    [{ attention_bias: true }, 'attention_bias is true; expected false'],
    [{ hidden_act: 'gelu' }, 'hidden_act is "gelu"; expected "silu"'],
    [
      { architectures: ['Qwen3ForSequenceClassification'] },
      'architectures is ["Qwen3ForSequenceClassification"]; expected ["Qwen3ForCausalLM"]',
    ],
  ])('is refused: %j', (change, message) => {
    expect(() => read({ ...baseConfig, ...change })).toThrow(BadModelFolder);
    expect(() => read({ ...baseConfig, ...change })).toThrow(`config.json: ${message}`);
    expect(() => read(nested(change))).toThrow(`config.json: text_config.${message}`);
  });

  test('is refused if the quantisation is beside text_config', () => {
    expect(() => read(nested({}, { quantization_config: gptq }))).toThrow('quantization_config is {');
  });

  test.each<object>([
    {},
    { quantization_config: null, layer_types: null, architectures: null, hidden_act: null },
    { use_sliding_window: false, sliding_window: 4096, max_window_layers: 28 },
    { layer_types: ['full_attention', 'full_attention'], attention_bias: false, attention_dropout: 0.1 },
    { model_type: 'qwen2', architectures: ['Qwen2ForCausalLM'], attention_bias: true },
  ])('is not %j', (change) => {
    const config = { ...baseConfig, ...change };
    expect(read(config)).toBe(config);
  });
});

describe('rope settings beside text_config', () => {
  const yarn = { rope_type: 'yarn', factor: 2, original_max_position_embeddings: 64 };
  test.each<object>([
    { rope_scaling: yarn },
    { rope_parameters: yarn },
    { rope_parameters: { full_attention: yarn } },
    { rope_scaling: { type: 'linear', factor: 2 } },
  ])('are refused, because they have no effect: %j', (outer) => {
    const [key] = Object.keys(outer);
    expect(() => read(nested({}, outer))).toThrow(
      `config.json: ${key} is beside text_config, where it has no`,
    );
  });

  test('are no problem if they change nothing, or the run spec has its own', () => {
    const { rope_parameters: _own, ...bare } = baseConfig;
    for (const outer of [{ rope_scaling: null }, { rope_parameters: { rope_type: 'default' } }, {}])
      expect(read(nested({}, outer))).toMatchObject({ max_position_embeddings: 64 });
    // As transformers 4 saves a Qwen2.5-VL.
    const mrope = { type: 'mrope', rope_type: 'default', mrope_section: [2, 3, 3] };
    for (const rope_scaling of [mrope, { type: 'mrope', mrope_section: [2, 3, 3] }]) {
      const text_config = { ...bare, model_type: 'qwen2_5_vl_text', rope_theta: 1e6, rope_scaling };
      const vl = { model_type: 'qwen2_5_vl', rope_scaling, text_config };
      expect(read(vl)).toMatchObject({ model_type: 'qwen2', max_position_embeddings: 64 });
    }
    const twice = { model_type: 'llava', rope_scaling: yarn, text_config: { ...bare, rope_scaling: yarn } };
    expect(read(twice)).toMatchObject({ max_position_embeddings: 128 });
    expect(read(nested({}, { rope_scaling: yarn }), { rope_type: 'yarn', factor: 2 })).toMatchObject({
      max_position_embeddings: 128,
    });
  });
});

describe('the tensors of a model', () => {
  const fixtures = readdirSync('native/tests/fixtures').filter((name) => /^qwen.*\.safetensors$/.test(name));
  test.each(fixtures)('have the names and shapes that transformers saved: %s', (name) => {
    const { tensors, metadata } = decodeSafetensors(readFileSync(`native/tests/fixtures/${name}`));
    const saved = Object.entries(tensors).flatMap(([key, { shape }]) =>
      key.startsWith('weights.') && !key.includes('lora_')
        ? [[key.slice('weights.'.length), shape] as const]
        : [],
    );
    const shapes = tensorShapes(JSON.parse(metadata['config'] as string) as Record<string, unknown>, '');
    expect(saved.length).toBeGreaterThan(10);
    expect(new Map(saved.filter(([key]) => shapes.has(key) || key !== 'lm_head.weight'))).toEqual(shapes);
  });

  let folder: string;
  beforeEach(() => (folder = ownFolder()));
  const refusal = (config: object, tensors: Record<string, Tensor>): Promise<string> =>
    checkModelFiles(writeBase(folder, config, tensors)).then(
      () => 'accepted',
      (error: Error) => `${error.name}: ${error.message.replaceAll(folder, '')}`,
    );
  const without = (lost: string): Record<string, Tensor> =>
    Object.fromEntries(Object.entries(baseTensors).filter(([name]) => name !== lost));
  const extra: Tensor = { dtype: 'F32', shape: [2, 32], data: new Float32Array(64) };
  const norm = 'model.layers.1.input_layernorm.weight';

  test('must all be there, and no others', async () => {
    expect(await refusal(baseConfig, baseTensors)).toBe('accepted');
    expect(await refusal(baseConfig, without(norm))).toBe(
      `BadModelFolder: /model.safetensors: tensor ${norm}, [32], is missing, and a qwen3 model with this config.json needs it`,
    );
    expect(await refusal(baseConfig, { ...baseTensors, 'score.weight': extra })).toContain(
      '/model.safetensors: tensor score.weight does not belong to a qwen3 model',
    );
    expect(await refusal({ ...baseConfig, num_hidden_layers: 1 }, baseTensors)).toMatch(
      /tensor model\.layers\.1\.\S+ does not belong/,
    );
    const buffer = { 'model.layers.0.self_attn.rotary_emb.inv_freq': extra };
    expect(await refusal(baseConfig, { ...baseTensors, ...buffer })).toBe('accepted');
  });

  test('must have the sizes of the config, and a type that is read', async () => {
    expect(await refusal(baseConfig, { ...baseTensors, [norm]: extra })).toContain(
      `tensor ${norm} is F32 [2, 32]; expected F32, F16 or BF16 [32]`,
    );
    const codes = { dtype: 'I32', shape: [32], data: new Int32Array(32) } as unknown as Tensor;
    expect(await refusal(baseConfig, { ...baseTensors, [norm]: codes })).toContain(`${norm} is I32 [32]`);
    for (const [key, value, words] of [
      ['hidden_size', 40, 'a multiple of 16'],
      ['num_key_value_heads', 3, 'a divisor of num_attention_heads'],
      ['head_dim', 2048, 'at most 1024'],
      ['intermediate_size', undefined, 'a whole number above 0'],
      ['tie_word_embeddings', 'true', 'true or false'],
    ] as const)
      expect(await refusal({ ...baseConfig, [key]: value }, baseTensors)).toMatch(
        new RegExp(`config\\.json: ${key} is .*; expected ${words}`),
      );
  });

  test('may be those of a tied model with its head', async () => {
    const embedding = baseTensors['model.embed_tokens.weight'] as Tensor;
    const tied = { ...baseConfig, tie_word_embeddings: true };
    expect(await refusal(tied, { ...without('lm_head.weight'), 'lm_head.weight': embedding })).toBe(
      'accepted',
    );
    expect(await refusal(tied, { ...without('lm_head.weight'), 'lm_head.weight': extra })).toContain(
      'tensor lm_head.weight is F32 [2, 32]',
    );
  });

  test('include those that an adapter changes, before a run starts', async () => {
    const base = writeBase(join(folder, 'base'));
    const config = { ...plainAdapter, base_model_name_or_path: base };
    const wide: Tensor = { dtype: 'F32', shape: [4, 16], data: new Float32Array(64) };
    const name = 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight';
    const adapter = writeAdapter(join(folder, 'adapter'), config, { ...adapterTensors, [name]: wide });
    await expect(checkModelFiles(adapter)).rejects.toThrow(
      /which is \[64, 32\] there: the adapter belongs to another/,
    );
    const named = Object.entries(adapterTensors).map(([key, tensor]): [string, Tensor] => [
      key.replace(/\.weight$/, '.policy.weight'),
      tensor,
    ]);
    writeAdapter(adapter, config, Object.fromEntries(named));
    expect((await checkModelFiles(adapter)).pairs.size).toBe(14);
    writeAdapter(adapter, config, { ...adapterTensors, ...Object.fromEntries(named) });
    await expect(checkModelFiles(adapter)).rejects.toThrow(
      /has several adapters: policy, one without a name;/,
    );
  });
});
