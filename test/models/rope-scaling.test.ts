import { describe, expect, test } from 'vitest';
import { BadModelFolder } from '../../src/models/hf-config.js';
import { withContext } from '../../src/models/rope-scaling.js';
import type { RopeScaling } from '../../src/spec/run-spec.js';

/** Qwen3's own config. */
const qwen3 = { model_type: 'qwen3', max_position_embeddings: 40_960, rope_theta: 1_000_000 };
const yarn = { rope_type: 'yarn', factor: 2, original_max_position_embeddings: 32_768 };
const extended = (config: object, scaling?: object) =>
  withContext(config as Record<string, unknown>, scaling as RopeScaling | undefined, 'config.json: ');

describe('rope settings by type of layer', () => {
  const { rope_theta: theta, ...bare } = qwen3;
  const full = { rope_type: 'default', rope_theta: theta };
  const sliding = { rope_type: 'default', rope_theta: 10_000 };

  test.each<[string, object, object]>([
    ['the one type that the model has', { layer_types: ['full_attention', 'full_attention'] }, sliding],
    ['the type that the model has without a list', {}, sliding],
    ['the only type in the file', {}, {}],
    [
      'types that agree, whatever the order of keys, and null counts as missing',
      { layer_types: ['full_attention', 'sliding_attention'] },
      { factor: null, rope_theta: theta, rope_type: 'default' },
    ],
  ])('are read for %s', (_, change, other) => {
    const rope_parameters = { full_attention: full, sliding_attention: other };
    expect(extended({ ...bare, ...change, rope_parameters })).toEqual({
      ...{ ...bare, ...change, rope_parameters: full },
    });
    expect(extended({ ...bare, ...change, rope_scaling: rope_parameters })).toMatchObject({
      rope_scaling: full,
    });
  });

  test('may be null for a type that the model lacks', () => {
    const rope_parameters = { full_attention: full, sliding_attention: null };
    expect(extended({ ...bare, rope_parameters })).toMatchObject({ rope_parameters: full });
  });

  test('keep YaRN and theta, also where the run spec has its own scaling', () => {
    const rope_parameters = { full_attention: { ...yarn, rope_theta: theta } };
    expect(extended({ ...bare, rope_parameters })).toEqual({
      ...{ ...bare, max_position_embeddings: 65_536, rope_parameters: rope_parameters.full_attention },
    });
    const own = extended({ ...bare, rope_parameters }, { ...yarn, factor: 4, type: 'yarn' });
    expect(own).toEqual({
      ...{ ...qwen3, max_position_embeddings: 131_072, rope_scaling: { ...yarn, factor: 4 } },
    });
  });

  test.each<[object, RegExp]>([
    [
      {
        layer_types: ['sliding_attention', 'full_attention'],
        rope_parameters: { full_attention: full, sliding_attention: sliding },
      },
      /^config\.json: rope_parameters: sliding_attention and full_attention differ \(.*10000.*1000000.*only models/,
    ],
    [
      { rope_parameters: { sliding_attention: sliding } },
      /^config\.json: rope_parameters\.full_attention is missing; expected an object with rope_theta/,
    ],
    [{ rope_parameters: { full_attention: null } }, /rope_parameters\.full_attention is null; expected/],
    [{ rope_parameters: { full_attention: 1e6 } }, /rope_parameters\.full_attention is 1000000; expected/],
    [
      { rope_parameters: { full_attention: full, rope_theta: 1e6 } },
      /rope_parameters\.rope_theta is 1000000; expected an object: the other keys are types of layers/,
    ],
    [{ rope_scaling: { linear_attention: full } }, /rope_scaling\.full_attention is missing/],
  ])('are refused: %j', (change, message) => {
    expect(() => extended({ ...bare, ...change })).toThrow(BadModelFolder);
    expect(() => extended({ ...bare, ...change })).toThrow(message);
  });
});

describe('the context of a model', () => {
  const { original_max_position_embeddings: _original, ...withoutOriginal } = yarn;
  test.each<[string, object, number]>([
    ['without YaRN', {}, 40_960],
    ['with rope_scaling null', { rope_scaling: null }, 40_960],
    ['with the default type', { rope_parameters: { rope_type: 'default', rope_theta: 1e6 } }, 40_960],
    ['with YaRN beside an empty block', { rope_scaling: yarn, rope_parameters: {} }, 65_536],
    ['with YaRN', { rope_scaling: yarn }, 65_536],
    [
      'with YaRN under its older name',
      { rope_scaling: { ...yarn, rope_type: undefined, type: 'yarn' } },
      65_536,
    ],
    ['with YaRN as in transformers 5', { rope_parameters: { ...yarn, rope_theta: 1e6 } }, 65_536],
    ['with YaRN in both forms', { rope_scaling: yarn, rope_parameters: yarn }, 65_536],
    ['with a factor that is no whole number', { rope_scaling: { ...yarn, factor: 2.5 } }, 81_920],
    ['without an original length, which is then its own', { rope_scaling: withoutOriginal }, 81_920],
    [
      'that already counts the factor',
      { max_position_embeddings: 131_072, rope_scaling: { ...yarn, factor: 4 } },
      131_072,
    ],
  ])('%s', (_, change, context) => {
    expect(extended({ ...qwen3, ...change })['max_position_embeddings']).toBe(context);
  });

  test('is extended by rope_scaling beside the default block that transformers 5 saves, whose theta stays', () => {
    const { rope_theta: theta, ...bare } = qwen3;
    const rope_parameters = { rope_type: 'default', rope_theta: theta };
    const both = { ...bare, max_position_embeddings: 65_536, rope_scaling: { ...yarn, rope_theta: theta } };
    for (const saved of [rope_parameters, { full_attention: rope_parameters }])
      expect(extended({ ...bare, rope_scaling: yarn, rope_parameters: saved })).toEqual(both);
    expect(extended({ ...qwen3, rope_scaling: yarn, rope_parameters: { rope_type: 'default' } })).toEqual({
      ...{ ...qwen3, max_position_embeddings: 65_536, rope_scaling: yarn },
    });
  });

  test('keeps the original length that YaRN counts from', () => {
    expect(extended({ ...qwen3, rope_scaling: withoutOriginal })).toMatchObject({
      rope_scaling: { original_max_position_embeddings: 40_960 },
    });
  });

  test('is extended by the run spec, whose scaling replaces the config’s', () => {
    const { rope_theta: theta, ...bare } = qwen3;
    for (const own of [
      { rope_theta: theta, rope_scaling: null },
      { rope_theta: theta, rope_scaling: { ...yarn, factor: 4 } },
      { rope_parameters: { rope_type: 'default', rope_theta: theta } },
      { rope_theta: theta, rope_scaling: { type: 'linear', factor: 3 } },
    ])
      expect(extended({ ...bare, ...own }, { ...yarn, type: 'yarn' })).toEqual({
        ...qwen3,
        max_position_embeddings: 65_536,
        rope_scaling: yarn,
      });
  });

  test.each<[object, RegExp]>([
    [
      { rope_scaling: { type: 'linear', factor: 2 } },
      /rope_scaling\.type is "linear"; expected "yarn" or "default"/,
    ],
    [{ rope_parameters: { ...yarn, rope_type: 'longrope' } }, /rope_parameters\.rope_type is "longrope"/],
    [
      { rope_scaling: { ...yarn, factor: '2' } },
      /rope_scaling\.factor is "2"; expected a number of at least 1/,
    ],
    [{ rope_scaling: { ...yarn, factor: 0.5 } }, /rope_scaling\.factor is 0\.5/],
    [{ rope_scaling: { ...yarn, factor: undefined } }, /rope_scaling\.factor is missing/],
    [
      { rope_scaling: { ...yarn, original_max_position_embeddings: 0 } },
      /rope_scaling\.original_max_position_embeddings is 0; expected a whole number above 0/,
    ],
    [{ rope_scaling: 'yarn' }, /rope_scaling is "yarn"; expected an object/],
    [
      { rope_scaling: { rope_type: 'default' }, rope_parameters: yarn },
      /^config\.json: rope_scaling and rope_parameters contradict each other; remove one of them/,
    ],
    [{ rope_scaling: yarn, rope_parameters: { ...yarn, factor: 4 } }, /contradict each other/],
    [
      { rope_scaling: yarn, rope_parameters: { rope_type: 'default', rope_theta: 5e6 } },
      /rope_theta is 1000000 and rope_scaling\.rope_theta is 5000000; remove one of them/,
    ],
    [{ rope_parameters: { ...yarn, rope_theta: 1e4 } }, /rope_parameters\.rope_theta is 10000; remove one/],
    [{ rope_scaling: { ...yarn, truncate: false } }, /rope_scaling\.truncate is false; expected true/],
    [
      { rope_parameters: { rope_type: 'default', partial_rotary_factor: 0.5 } },
      /rope_parameters\.partial_rotary_factor is 0\.5; expected 1/,
    ],
    [{ rope_scaling: { ...yarn, factor: 64 } }, /extends 32768 positions to 2097152; at most 1048576/],
  ])('is refused: %j', (change, message) => {
    expect(() => extended({ ...qwen3, ...change })).toThrow(BadModelFolder);
    expect(() => extended({ ...qwen3, ...change })).toThrow(message);
  });
});
