import { describe, expect, test } from 'vitest';
import { BadModelFolder, outlineOf } from '../../src/models/hf-config.js';

/** The config in the folder of Qwen3-0.6B. */
const qwen3 = {
  architectures: ['Qwen3ForCausalLM'],
  hidden_size: 1024,
  max_position_embeddings: 40960,
  model_type: 'qwen3',
  tie_word_embeddings: true,
  vocab_size: 151936,
};

const read = (config: object) => outlineOf(config as Record<string, unknown>, 'config.json: ');

describe('the outline of a config.json', () => {
  test('contains the limits for a tokenizer and for episodes', () => {
    expect(read(qwen3)).toEqual({
      model_type: 'qwen3',
      vocab_size: 151936,
      max_position_embeddings: 40960,
    });
    const { max_position_embeddings: _longest, ...rest } = qwen3;
    expect(read({ ...rest, model_type: 'qwen2' })).toMatchObject({
      model_type: 'qwen2',
      max_position_embeddings: 32768,
    });
  });

  test.each<[string, object, RegExp]>([
    ['another family', { model_type: 'llama' }, /model_type is "llama"; expected .*"qwen3".*"qwen2"/],
    ['experts', { model_type: 'qwen3_moe' }, /model_type is "qwen3_moe"/],
    ['no family', { model_type: undefined }, /model_type is missing/],
    ['no vocabulary', { vocab_size: null }, /vocab_size is missing|vocab_size is null/],
    [
      'a length that is text',
      { max_position_embeddings: '1024' },
      /max_position_embeddings is "1024"; expected a whole number above 0/,
    ],
  ])('is refused with %s; the error names the key, the value and what is expected', (_, change, message) => {
    expect(() => read({ ...qwen3, ...change })).toThrow(BadModelFolder);
    expect(() => read({ ...qwen3, ...change })).toThrow(message);
    expect(() => read({ ...qwen3, ...change })).toThrow(/^config\.json: /);
  });
});
