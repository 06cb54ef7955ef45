import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { weightFiles } from '../../src/models/model-files.js';
import { modelFilesDigest } from '../../src/models/model-source.js';
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
    write('chat_template.json', { chat_template: 'of the processor' });
    expect((await readModelFolder(folder)).chatTemplate).toBe('named');
    write('tokenizer_config.json', {});
    expect((await readModelFolder(folder)).chatTemplate).toBe('of the processor');
  });

  test('has no tokens that end a text without an id that the model has: the error names file and value', async () => {
    for (const [ids, found] of [
      ['2', '"2"'],
      [[[2]], '[[2]]'],
      [[2, -1], '[2,-1]'],
      [1.5, '1.5'],
      [[2, 1024], '1024'],
    ] as const)
      for (const name of ['generation_config.json', 'config.json']) {
        write('generation_config.json', {});
        write('config.json', config);
        write(name, { ...config, eos_token_id: ids });
        await expect(readModelFolder(folder)).rejects.toThrow(
          `${join(folder, name)}: eos_token_id is ${found}; expected`,
        );
      }
    write('generation_config.json', { eos_token_id: [] });
    write('config.json', { ...config, eos_token_id: [5] });
    expect((await readModelFolder(folder)).eosTokens).toEqual([5]);
    write('config.json', { ...config, eos_token_id: null });
    expect((await readModelFolder(folder)).eosTokens).toEqual([]);
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

describe('a model folder as others write it', () => {
  const mark = '\uFEFF';

  test('may begin its files with a byte order mark', async () => {
    write('config.json', mark + JSON.stringify(config));
    write('tokenizer.json', mark + tokenizer);
    write('generation_config.json', `${mark}{"eos_token_id": 4}`);
    write('chat_template.jinja', `${mark}template`);
    expect(await readModelFolder(folder)).toMatchObject({
      ...{ tokenizer, eosTokens: [4], chatTemplate: 'template', outline: { vocab_size: 1024 } },
    });
  });

  test('may describe its language model in text_config', async () => {
    const outer = { model_type: 'llava_onevision', tie_word_embeddings: true, vision_config: {} };
    write('config.json', { ...outer, text_config: { ...config, max_position_embeddings: 4096 } });
    expect((await readModelFolder(folder)).outline).toEqual({
      model_type: 'qwen3',
      vocab_size: 1024,
      max_position_embeddings: 4096,
    });
    // A language model's own settings count, whatever else its config has.
    write('config.json', { ...config, text_config: { vocab_size: 5 } });
    expect((await readModelFolder(folder)).outline).toMatchObject({ vocab_size: 1024 });
    write('config.json', { model_type: 'qwen3', text_config: { ...config, model_type: null } });
    expect((await readModelFolder(folder)).outline).toMatchObject({ vocab_size: 1024 });
    write('config.json', { ...outer, text_config: { ...config, model_type: 'qwen3_5_text' } });
    await expect(readModelFolder(folder)).rejects.toThrow(
      /config\.json: text_config\.model_type is "qwen3_5_text"; expected .*"qwen3"/,
    );
  });

  const mrope = { rope_type: 'default', mrope_interleaved: true, mrope_section: [24, 20, 20] };
  const vl = { vision_config: { depth: 24 }, image_token_id: 9, max_position_embeddings: 128_000 };
  test.each<[string, object, object]>([
    [
      'Qwen3-VL',
      {
        ...{ ...vl, model_type: 'qwen3_vl', tie_word_embeddings: true },
        text_config: { ...config, model_type: 'qwen3_vl_text', rope_scaling: mrope, rope_theta: 5e6 },
      },
      { model_type: 'qwen3', max_position_embeddings: 32_768 },
    ],
    [
      'Qwen3-VL’s language model alone',
      { ...config, model_type: 'qwen3_vl_text', rope_parameters: { ...mrope, rope_theta: 5e6 } },
      { model_type: 'qwen3' },
    ],
    [
      'Qwen2.5-VL, whose settings of text are not nested',
      {
        ...{ ...config, ...vl, model_type: 'qwen2_5_vl', rope_theta: 1e6 },
        ...{ rope_scaling: { type: 'mrope', mrope_section: [16, 24, 24] } },
      },
      { model_type: 'qwen2', max_position_embeddings: 128_000 },
    ],
    [
      'Qwen2-VL with a text_config that names no type',
      { ...vl, model_type: 'qwen2_vl', text_config: { ...config, model_type: null, rope_theta: 1e6 } },
      { model_type: 'qwen2' },
    ],
    [
      'Qwen3-VL with YaRN',
      {
        ...{ ...vl, model_type: 'qwen3_vl' },
        text_config: {
          ...{ ...config, model_type: 'qwen3_vl_text', max_position_embeddings: 4096 },
          rope_parameters: { ...mrope, rope_type: 'yarn', factor: 3, rope_theta: 5e6 },
        },
      },
      { model_type: 'qwen3', max_position_embeddings: 12_288 },
    ],
  ])('of %s is read as that of its language model', async (_, content, outline) => {
    write('config.json', content);
    expect((await readModelFolder(folder)).outline).toMatchObject({ vocab_size: 1024, ...outline });
  });

  test.each<[string, object, string[]]>([
    [
      'experts',
      { ...vl, model_type: 'qwen3_vl_moe', text_config: { ...config, model_type: 'qwen3_vl_moe_text' } },
      ['text_config.model_type is "qwen3_vl_moe_text"', '"qwen3_vl_moe" is a', 'not its image encoder'],
    ],
    [
      'another family',
      { ...vl, model_type: 'llava', text_config: { ...config, model_type: 'llama' } },
      ['text_config.model_type is "llama"', '"llava" is a multimodal model', '(vision_config)'],
    ],
    [
      'more than images',
      { model_type: 'qwen2_5_omni', thinker_config: { text_config: config }, talker_config: {} },
      ['model_type is "qwen2_5_omni"', '(thinker_config), nor its talker', 'such as Qwen/Qwen3-4B'],
    ],
    [
      'a language model of experts alone',
      { ...config, model_type: 'qwen3_vl_moe_text' },
      ['model_type is "qwen3_vl_moe_text"', 'is a multimodal model'],
    ],
  ])('is refused with %s: the error says what is not supported, and what is', async (_, content, parts) => {
    write('config.json', content);
    const refused = readModelFolder(folder);
    for (const part of [...parts, '"qwen3" (Qwen3, dense)']) await expect(refused).rejects.toThrow(part);
    // A part is named only if the folder has it.
    if (!('vision_config' in content)) await expect(refused).rejects.not.toThrow('vision_config');
  });

  test('is refused if it leaves theta of a multimodal model to a default that has changed', async () => {
    const nested = { ...config, model_type: 'qwen3_vl_text', rope_scaling: mrope };
    write('config.json', { ...vl, model_type: 'qwen3_vl', text_config: nested });
    await expect(readModelFolder(folder)).rejects.toThrow(
      /text_config\.rope_theta is missing; expected a number/,
    );
    write('config.json', { ...config, ...vl, model_type: 'qwen2_5_vl' });
    await expect(readModelFolder(folder)).rejects.toThrow(/config\.json: rope_theta is missing/);
    const rope_parameters = { full_attention: { rope_type: 'default', rope_theta: 1e6 } };
    write('config.json', { ...config, ...vl, model_type: 'qwen2_5_vl', rope_parameters });
    expect((await readModelFolder(folder)).outline).toMatchObject({ model_type: 'qwen2' });
  });

  test('is refused without a word on images if it is a text model', async () => {
    write('config.json', { ...config, model_type: 'llama' });
    await expect(readModelFolder(folder)).rejects.toThrow(/"qwen2" \([^)]*\)$/);
  });

  test.each(['config.json', 'tokenizer.json', 'generation_config.json', 'chat_template.jinja'])(
    'is refused if its %s is a pointer of Git LFS',
    async (name) => {
      write(name, 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n');
      await expect(readModelFolder(folder)).rejects.toThrow(
        `${join(folder, name)} is a Git LFS pointer instead of the file: run \`git lfs pull\` in ${folder}`,
      );
    },
  );
});

describe('the files of its weights', () => {
  test('are a single file, or those that the index lists', async () => {
    expect(await weightFiles(folder)).toEqual(['model.safetensors']);
    rmSync(join(folder, 'model.safetensors'));
    write('model.safetensors.index.json', {
      weight_map: { b: '2.safetensors', a: '1.safetensors', c: '1.safetensors' },
    });
    write('1.safetensors', 'one');
    await expect(weightFiles(folder)).rejects.toThrow(
      /has no 2\.safetensors, which model\.safetensors\.index\.json lists/,
    );
    write('2.safetensors', 'two');
    expect(await weightFiles(folder)).toEqual(['1.safetensors', '2.safetensors']);
    rmSync(join(folder, 'model.safetensors.index.json'));
    write('model-00001-of-00002.safetensors', 'one');
    await expect(weightFiles(folder)).rejects.toThrow(/copy the index of these shards too/);
  });

  test('are not guessed if a single file lies beside shards, one of which is older', async () => {
    write('model.safetensors.index.json', { weight_map: { a: '1.safetensors', b: '2.safetensors' } });
    // transformers leaves the index of a larger model behind, but not its shards. The engine reads the single file too.
    expect(await weightFiles(folder)).toEqual(['model.safetensors']);
    write('2.safetensors', 'two');
    await expect(weightFiles(folder)).rejects.toThrow(
      /has model\.safetensors and the shards .* such as 2\.safetensors.*whichever is older/,
    );
    write('1.safetensors', 'one');
    await expect(weightFiles(folder)).rejects.toThrow(/such as 1\.safetensors/);
    write('model.safetensors.index.json', { weight_map: { a: 'model.safetensors' } });
    expect(await weightFiles(folder)).toEqual(['model.safetensors']);
  });

  test('never lie outside the folder', async () => {
    rmSync(join(folder, 'model.safetensors'));
    write('model.safetensors.index.json', { weight_map: { a: '../1.safetensors' } });
    await expect(weightFiles(folder)).rejects.toThrow(/weight_map names "\.\.\/1\.safetensors"/);
  });

  test('that are pickles are refused, and the error says so', async () => {
    rmSync(join(folder, 'model.safetensors'));
    write('pytorch_model.bin', 'x');
    await expect(weightFiles(folder)).rejects.toThrow(
      /it has pytorch_model\.bin instead: save the model as safetensors/,
    );
  });

  test.each([
    ['model-Q4_K_M.gguf', /it has model-Q4_K_M\.gguf, whose format is for inference/],
    ['consolidated.safetensors', /whose tensors have other names/],
    ['model.fp16.safetensors', /if that is the whole model, name it model\.safetensors/],
    ['checkpoint-100/model.safetensors', /checkpoint-100 has a model: name that folder/],
    ['actor/model.safetensors.index.json', /actor has a model: name that folder/],
  ])('that are not there are sought in %s', async (name, message) => {
    rmSync(join(folder, 'model.safetensors'));
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    write(name, 'x');
    await expect(weightFiles(folder)).rejects.toThrow(message);
    if (!name.includes('/')) return;
    rmSync(join(folder, 'config.json'));
    await expect(readModelFolder(folder)).rejects.toThrow(message);
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
      ['date_string', /set for each prompt/],
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
