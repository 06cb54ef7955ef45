import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { checkModelFiles, withEngineFolder } from '../../src/models/engine-folder.js';
import { BadModelFolder } from '../../src/models/hf-config.js';
import { readModelFolder } from '../../src/models/model-folder.js';
import { modelFilesDigest } from '../../src/models/model-source.js';
import { readAdapter } from '../../src/models/peft-adapter.js';
import type { Tensor } from '../../src/store/files/safetensors.js';
import { ownFolder } from '../support/scratch-folder.js';
import { adapterTensors, plainAdapter, withRank, writeAdapter, writeBase } from './foreign-folder.js';

let scratch: string;
let base: string;
let folder: string;
const adapter = (change: object = {}, tensors = adapterTensors): string =>
  writeAdapter(folder, { ...plainAdapter, base_model_name_or_path: base, ...change }, tensors);
beforeEach(() => {
  scratch = ownFolder();
  base = writeBase(join(scratch, 'base'));
  folder = join(scratch, 'adapter');
  adapter();
});

async function refusal(path = folder): Promise<string> {
  const found: unknown = await checkModelFiles(path).catch((error: unknown) => error);
  expect(found).toBeInstanceOf(BadModelFolder);
  return (found as Error).message;
}

describe('the scale of an adapter', () => {
  const scales = async (change: object, tensors = adapterTensors): Promise<Record<string, number>> => {
    const pairs = await readAdapter(adapter(change, tensors));
    return Object.fromEntries(
      ['0.self_attn.q_proj', '1.self_attn.q_proj', '0.mlp.up_proj'].map((name) => [
        name,
        pairs.get(`model.layers.${name}.weight`)!.scale,
      ]),
    );
  };
  test('is alpha / rank, or alpha / √rank with rsLoRA; the first matching pattern sets both', async () => {
    const all = (scale: number) => ({
      '0.self_attn.q_proj': scale,
      '1.self_attn.q_proj': scale,
      '0.mlp.up_proj': scale,
    });
    expect(await scales({})).toEqual(all(2));
    expect(await scales({ use_rslora: true })).toEqual(all(4));
    expect(await scales({ alpha_pattern: { q_proj: 12, 'layers.0.self_attn.q_proj': 40 } })).toEqual({
      ...all(3),
      '0.mlp.up_proj': 2,
    });
    expect(await scales({ alpha_pattern: { '^model.layers.1.self_attn.q_proj': 12, proj: 40 } })).toEqual({
      ...all(2),
      '1.self_attn.q_proj': 3,
    });
    expect(await scales({ rank_pattern: { q_proj: 16 }, use_rslora: true }, withRank('q_proj', 16))).toEqual({
      ...all(2),
      '0.mlp.up_proj': 4,
    });
  });
});

describe('an adapter that is not supported', () => {
  test.each<[object, string]>([
    [{ use_dora: true }, 'use_dora is true'],
    [{ bias: 'all' }, 'bias is "all"'],
    [{ lora_bias: true }, 'lora_bias is true'],
    [{ modules_to_save: ['lm_head'] }, 'modules_to_save is ["lm_head"]'],
    [{ layer_replication: [[0, 1]] }, 'layer_replication is [[0,1]]'],
    [{ target_parameters: ['mlp.experts'] }, 'target_parameters is ["mlp.experts"]'],
    [{ trainable_token_indices: [1] }, 'trainable_token_indices is [1]'],
    [{ use_qalora: true }, 'use_qalora is true'],
    [{ some_later_key: 3 }, 'some_later_key is 3'],
    [{ init_lora_weights: 'pissa_niter_4' }, 'init_lora_weights is "pissa_niter_4"; expected true'],
    [{ init_lora_weights: 'olora' }, 'init_lora_weights is "olora"'],
    [{ peft_type: 'IA3' }, 'peft_type is "IA3"; expected "LORA"'],
    [{ peft_type: undefined }, 'peft_type is missing'],
    [{ r: 8 }, 'r is 8; expected 4, the rank of model.layers.'],
    [{ rank_pattern: { v_proj: 2 } }, 'rank_pattern.v_proj is 2; expected 4'],
    [{ rank_pattern: { '(': 2 } }, 'rank_pattern is "("; expected names of modules, or regular expressions'],
    [{ alpha_pattern: { v_proj: '8' } }, 'alpha_pattern.v_proj is "8"; expected a number'],
    [{ use_rslora: 'yes' }, 'use_rslora is "yes"; expected true or false'],
  ])('is refused, and the error names the key: %j', async (change, message) => {
    adapter(change);
    expect(await refusal()).toContain(`${join(folder, 'adapter_config.json')}: ${message}`);
  });

  const name = 'base_model.model.model.layers.0.self_attn.q_proj';
  const { [`${name}.lora_B.weight`]: _b, ...withoutB } = adapterTensors;
  const wide: Tensor = { dtype: 'F32', shape: [4, 16], data: new Float32Array(64) };
  test.each<[string, Record<string, Tensor>, RegExp]>([
    [
      'an embedding',
      { ...adapterTensors, 'base_model.model.model.embed_tokens.lora_embedding_A': wide },
      /embed_tokens\.lora_embedding_A is not supported/,
    ],
    [
      'a magnitude',
      { ...adapterTensors, [`${name}.lora_magnitude_vector`]: wide },
      /lora_magnitude_vector is not supported/,
    ],
    ['one matrix only', withoutB, /layers\.0\.self_attn\.q_proj has no lora_B\.weight/],
    ['no tensors', {}, /has no tensors/],
    [
      'another width',
      { ...adapterTensors, [`${name}.lora_A.weight`]: wide },
      /of \[64, 16\], which is \[64, 32\] there: the adapter belongs to another base model/,
    ],
  ])('is refused with %s; the error names the tensor', async (_, tensors, message) => {
    adapter({}, tensors);
    const use = () => Promise.reject(new Error('not reached'));
    await expect(withEngineFolder(folder, { scratch }, use)).rejects.toThrow(message);
  });
});

describe('the base of an adapter', () => {
  test('gives config, and tokenizer and template if the adapter has none', async () => {
    writeFileSync(join(base, 'chat_template.jinja'), 'of the base');
    expect(await readModelFolder(folder)).toMatchObject({
      ...{
        path: folder,
        chatTemplate: 'of the base',
        outline: { vocab_size: 40, max_position_embeddings: 64 },
      },
    });
    writeFileSync(join(folder, 'chat_template.jinja'), 'of the adapter');
    expect((await readModelFolder(folder)).chatTemplate).toBe('of the adapter');
  });

  test('counts towards the digest, as the adapter does', async () => {
    const digests = new Set([await modelFilesDigest(base), await modelFilesDigest(folder)]);
    adapter({ lora_alpha: 16 });
    digests.add(await modelFilesDigest(folder));
    writeFileSync(join(base, 'config.json'), '{}');
    digests.add(await modelFilesDigest(folder));
    expect(digests.size).toBe(4);
  });

  test('must be a folder', async () => {
    for (const named of [null, undefined, '']) {
      adapter({ base_model_name_or_path: named });
      expect(await refusal()).toMatch(
        /base_model_name_or_path is (missing|""): write the path of the base model's folder there$/,
      );
    }
    for (const named of [join(scratch, 'none'), './none', '../none']) {
      adapter({ base_model_name_or_path: named });
      expect(await refusal()).toMatch(
        /but there is no folder .*none: write the path of the base model's folder/,
      );
    }
    adapter({ base_model_name_or_path: writeAdapter(join(scratch, 'other'), plainAdapter) });
    expect(await refusal()).toMatch(/adapters on adapters are not supported/);
  });

  test.each(['Qwen/Qwen3-0.6B', 'gpt2'])(
    'may be %s of the hub: the error says where it was sought, and a download to there is found',
    async (named) => {
      adapter({ base_model_name_or_path: named });
      const place = join(folder, named);
      const message = await refusal();
      expect(message).toContain(`base_model_name_or_path is "${named}", but there is no folder ${place}:`);
      expect(message).toContain(`run \`hf download ${named} --local-dir ${place}\`, or write the path`);
      await expect(readModelFolder(folder)).rejects.toThrow(message);
      writeBase(place);
      expect((await checkModelFiles(folder)).pairs.size).toBe(14);
    },
  );

  test('must be clear if the folder has weights too: an adapter is never left out in silence', async () => {
    writeBase(folder);
    for (const named of [base, 'Qwen/Qwen3-0.6B', null]) {
      adapter({ base_model_name_or_path: named });
      expect(await refusal()).toMatch(
        /has weights of its own too: write "\." there to add the adapter .* if they contain it already, remove/,
      );
      await expect(readModelFolder(folder)).rejects.toThrow(BadModelFolder);
      await expect(modelFilesDigest(folder)).rejects.toThrow(BadModelFolder);
    }
    adapter({ base_model_name_or_path: '.' });
    expect((await checkModelFiles(folder)).pairs.size).toBe(14);
    rmSync(join(folder, 'adapter_config.json'));
    expect(await refusal()).toMatch(
      /has adapter_model\.safetensors of a PEFT adapter, but no adapter_config\.json/,
    );
    rmSync(join(folder, 'adapter_model.safetensors'));
    writeFileSync(join(folder, 'adapter_config.json'), '{}');
    expect(await refusal()).toMatch(/but no adapter_model\.safetensors/);
    writeFileSync(join(folder, 'adapter_model.bin'), '');
    expect(await refusal()).toMatch(/save the adapter as safetensors/);
  });
});
