import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { modelFilesDigest, weightFiles } from '../../src/models/model-files.js';
import { readModelFolder, selfContained } from '../../src/models/model-folder.js';
import { templateText } from '../../src/policy/model-assets.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { ownFolder } from '../support/scratch-folder.js';

const config = {
  model_type: 'qwen3',
  ...{ vocab_size: 1024, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 32, tie_word_embeddings: true },
  eos_token_id: 2,
};
const tokenizer = readFileSync('presets/tokenizers/small/tokenizer.json', 'utf8');

let folder: string;
const write = (name: string, content: object | string): void =>
  writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content));
beforeEach(() => {
  folder = ownFolder();
  write('config.json', config);
  write('tokenizer.json', tokenizer);
  write('model.safetensors', 'weights');
});

describe('a model folder', () => {
  test('gives its architecture, its tokenizer, and the tokens that end a text', async () => {
    write('generation_config.json', { eos_token_id: [3, 4] });
    write('chat_template.jinja', 'template');
    expect(await readModelFolder(folder)).toMatchObject({
      path: folder,
      outline: { vocab_size: 1024 },
      eosTokens: [3, 4],
      tokenizer,
      chatTemplate: 'template',
    });
  });

  test('may have its template and special tokens in tokenizer_config.json, in any of their forms', async () => {
    write('tokenizer_config.json', {
      chat_template: 'old',
      bos_token: null,
      eos_token: { content: '<|im_end|>' },
    });
    expect(await readModelFolder(folder)).toMatchObject({
      eosTokens: [2],
      chatTemplate: 'old',
      texts: { eos_token: '<|im_end|>' },
    });
    const named = [
      { name: 'tool_use', template: 'tools' },
      { name: 'default', template: 'named' },
    ];
    write('tokenizer_config.json', { chat_template: named });
    expect((await readModelFolder(folder)).chatTemplate).toBe('named');
  });

  test('is refused if its tokenizer has more tokens than the model’s head', async () => {
    write('config.json', { ...config, vocab_size: 1000 });
    await expect(readModelFolder(folder)).rejects.toThrow(
      /tokenizer\.json has 1024 tokens, but the model's vocab_size is 1000/,
    );
  });

  test('that is incomplete or broken is refused, and the error says what is wrong', async () => {
    await expect(readModelFolder(join(folder, 'none'))).rejects.toThrow(/there is no folder .*none/);
    write('config.json', '{"model_type": ');
    await expect(readModelFolder(folder)).rejects.toThrow(/config\.json is not JSON/);
    rmSync(join(folder, 'config.json'));
    await expect(readModelFolder(folder)).rejects.toThrow(/there is no .*config\.json/);
  });
});

describe('the files of its weights', () => {
  test('are a single file, or those that the index lists', async () => {
    write('model.safetensors.index.json', {
      weight_map: { b: '2.safetensors', a: '1.safetensors', c: '1.safetensors' },
    });
    // hf_folder_test.cc tests the same for the engine: the digest covers only the files that are read.
    expect(await weightFiles(folder)).toEqual(['model.safetensors']);
    rmSync(join(folder, 'model.safetensors'));
    write('1.safetensors', 'one');
    await expect(weightFiles(folder)).rejects.toThrow(
      /has no 2\.safetensors, which model\.safetensors\.index\.json lists/,
    );
    write('2.safetensors', 'two');
    expect(await weightFiles(folder)).toEqual(['1.safetensors', '2.safetensors']);
  });

  test('never lie outside the folder', async () => {
    rmSync(join(folder, 'model.safetensors'));
    write('model.safetensors.index.json', { weight_map: { a: '../1.safetensors' } });
    await expect(weightFiles(folder)).rejects.toThrow(/weight_map names "\.\.\/1\.safetensors"/);
  });

  test('that are pickles or adapters are refused, and the error says which they are', async () => {
    rmSync(join(folder, 'model.safetensors'));
    write('adapter_config.json', {});
    await expect(weightFiles(folder)).rejects.toThrow(/it is a PEFT adapter/);
    write('pytorch_model.bin', 'x');
    await expect(weightFiles(folder)).rejects.toThrow(
      /it has pytorch_model\.bin instead: save the model as safetensors/,
    );
  });

  test('have a digest of their own content and the config’s, and of nothing else', async () => {
    const digest = await modelFilesDigest(folder);
    write('README.md', 'text');
    mkdirSync(join(folder, 'images'));
    expect(await modelFilesDigest(folder)).toBe(digest);
    write('model.safetensors', 'weighty');
    const other = await modelFilesDigest(folder);
    expect(other).not.toBe(digest);
    write('config.json', { ...config, rope_theta: 5 });
    expect(await modelFilesDigest(folder)).not.toBe(other);
  });
});

test('a template that uses special tokens gets their texts; any other template stays unchanged', () => {
  const texts = { bos_token: '<s>', eos_token: '</s>' };
  expect(selfContained('{{ messages }}', texts)).toBe('{{ messages }}');
  expect(selfContained('{{ bos_token }}!', texts)).toBe('{%- set bos_token = "<s>" %}{{ bos_token }}!');
});

describe('the chat template of a run without a model folder', () => {
  const specWith = (chat_template: string, generator: object = {}): RunSpec =>
    ({
      model: { name: 'm', tokenizer: join(folder, 'tokenizer.json'), chat_template },
      generator,
    }) as RunSpec;

  test('may be the one in a tokenizer_config.json, with the texts of its special tokens', async () => {
    const file = join(folder, 'tokenizer_config.json');
    write('tokenizer_config.json', { chat_template: 'ends with {{ eos_token }}', eos_token: '<|im_end|>' });
    expect(await templateText(specWith(file))).toBe(
      '{%- set eos_token = "<|im_end|>" %}ends with {{ eos_token }}',
    );
    write('tokenizer_config.json', { eos_token: '<|im_end|>' });
    await expect(templateText(specWith(file))).rejects.toThrow(/tokenizer_config\.json has no chat_template/);
  });

  test('sets the variables of the spec, and refuses those that it does not have', async () => {
    const file = join(folder, 'chat_template.jinja');
    write('chat_template.jinja', '{% if enable_thinking %}<think>{% endif %}');
    expect(await templateText(specWith(file, { chat_template_kwargs: { enable_thinking: false } }))).toBe(
      '{%- set enable_thinking = false %}{% if enable_thinking %}<think>{% endif %}',
    );
    for (const [name, problem] of [
      ['enable_thinkin', /no variable of the chat template/],
      ['messages', /set for each prompt/],
    ] as const)
      await expect(templateText(specWith(file, { chat_template_kwargs: { [name]: false } }))).rejects.toThrow(
        problem,
      );
  });

  test('may be a Jinja file, which is taken as it is', async () => {
    write('chat_template.jinja', 'template');
    expect(await templateText(specWith(join(folder, 'chat_template.jinja')))).toBe('template');
  });
});
