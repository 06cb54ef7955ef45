// Folders as others write them, loaded by the engine. The expected log-probs are PEFT's own.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { withEngineFolder } from '../../src/models/engine-folder.js';
import { readModelFolder } from '../../src/models/model-folder.js';
import { decodeSafetensors, type Tensor } from '../../src/store/files/safetensors.js';
import { startEngine } from '../engine/engine-fixture.js';
import { ownFolder } from '../support/scratch-folder.js';
import {
  adapterTensors,
  baseConfig,
  baseTensors,
  plainAdapter,
  sequences,
  withRank,
  writeAdapter,
  writeBase,
  writeTensors,
} from './foreign-folder.js';

let scratch: string;
let base: string;
beforeEach(() => {
  scratch = ownFolder();
  base = writeBase(join(scratch, 'base'));
});

async function loaded(folder: string, ropeScaling?: { rope_type: 'yarn'; factor: number }) {
  const engine = startEngine();
  const options = { scratch, ...(ropeScaling ? { ropeScaling } : {}) };
  const { state, architecture, weights } = await withEngineFolder(folder, options, (path) =>
    engine.loadHf({ path }),
  );
  const scores = (): Promise<number[][]> =>
    Promise.all(sequences.map(({ tokens }) => engine.score({ state, tokens, temperature: 1 })));
  return { scores, architecture, weights };
}

/** Largest difference from the log-probs that PEFT computed. */
const difference = (scores: number[][]): number =>
  Math.max(...scores.flatMap((row, i) => row.map((one, at) => Math.abs(one - sequences[i]!.logprobs[at]!))));

describe('a PEFT adapter', () => {
  const scale = 8 / 4;
  test.each<[string, object, Record<string, Tensor>]>([
    ['plain', {}, adapterTensors],
    ['on all-linear', { target_modules: 'all-linear' }, adapterTensors],
    ['with rsLoRA', { use_rslora: true, lora_alpha: scale * Math.sqrt(4) }, adapterTensors],
    [
      'with rank_pattern and alpha_pattern',
      { rank_pattern: { q_proj: 6 }, alpha_pattern: { 'self_attn.q_proj': scale * 6 } },
      withRank('q_proj', 6),
    ],
    [
      'with patterns that are expressions, and rsLoRA',
      {
        use_rslora: true,
        lora_alpha: scale * Math.sqrt(4),
        rank_pattern: { '^model\\.layers\\.[01]\\.mlp\\.(up|down)_proj': 4, '.*\\.v_proj': 9 },
        alpha_pattern: { 'layers\\.\\d+\\.self_attn\\.v_proj': scale * 3 },
      },
      withRank('v_proj', 9),
    ],
  ])('%s is added to the base model that it names, as PEFT does it', async (_, change, tensors) => {
    const config = { ...plainAdapter, ...change, base_model_name_or_path: '../base' };
    const { scores } = await loaded(writeAdapter(join(scratch, 'adapter'), config, tensors));
    expect(difference(await scores())).toBeLessThan(1e-4);
    expect(difference(await (await loaded(base)).scores())).toBeGreaterThan(0.01);
  });

  test('beside the weights of its base is used if it names this folder', async () => {
    writeAdapter(base, { ...plainAdapter, base_model_name_or_path: '.' });
    expect(difference(await (await loaded(base)).scores())).toBeLessThan(1e-4);
  });
});

test('the language model of a multimodal folder is loaded alone, with either order of names', async () => {
  const vision: Tensor = { dtype: 'F32', shape: [2], data: new Float32Array(2) };
  const { weights } = await loaded(base);
  const nested = { model_type: 'llava_onevision', architectures: ['Llava'], text_config: baseConfig };
  for (const prefix of ['model.language_model.', 'language_model.model.']) {
    const tensors = Object.entries(baseTensors).map(([name, tensor]): [string, Tensor] => [
      name.replace(/^model\./, prefix),
      tensor,
    ]);
    const folder = writeBase(join(scratch, prefix), nested, {
      ...Object.fromEntries(tensors),
      'model.vision_tower.layers.0.weight': vision,
    });
    expect((await loaded(folder)).weights).toBe(weights);
  }
});

/** Configs as transformers writes them, and log-probs of text that its multimodal models gave. */
const multimodal = JSON.parse(readFileSync('test/models/multimodal.json', 'utf8')) as {
  fixture: string;
  config: Record<string, unknown> & { model_type: string; text_config: Record<string, unknown> };
  logprobs: number[][];
}[];

describe.each(multimodal)('the language model of $config.model_type', ({ fixture, config, logprobs }) => {
  const { tensors, metadata } = decodeSafetensors(
    readFileSync(`native/tests/fixtures/${fixture}.safetensors`),
  );
  const weights = Object.entries(tensors).flatMap(([name, tensor]): [string, Tensor][] =>
    name.startsWith('weights.') ? [[name.slice('weights.'.length), tensor]] : [],
  );
  const vision: Tensor = { dtype: 'F32', shape: [2], data: new Float32Array(2) };
  const { text_config: text, ...outer } = config;
  const older = { ...outer, ...text, model_type: config.model_type, architectures: ['Multimodal'] };
  const alone = Object.fromEntries(weights.map(([name, tensor]) => [name.replace(/^model\./, ''), tensor]));

  test.each<[string, object, string, Record<string, Tensor>]>([
    ['', config, 'model.language_model.', { 'model.visual.blocks.0.norm1.weight': vision }],
    ['with settings that are not nested', older, 'model.', { 'visual.blocks.0.norm1.weight': vision }],
    ['in a folder of its own', text, '', alone],
  ])(`gives text the log-probs of transformers (${fixture}) %s`, async (_, written, prefix, others) => {
    const named = weights.map(([name, tensor]) => [name.replace(/^model\./, prefix), tensor] as const);
    const folder = writeBase(join(scratch, 'vl'), written, { ...Object.fromEntries(named), ...others });
    const own = JSON.parse(metadata['config'] as string) as object;
    const plain = writeBase(join(scratch, 'plain'), own, Object.fromEntries(weights));
    const [one, other] = [await loadedModel(folder), await loadedModel(plain)];
    expect(one.architecture).toEqual(other.architecture);
    expect(one.weights).toBe(other.weights);
    for (const [i, expected] of logprobs.entries()) {
      const tokens = [...(tensors[`tokens.${i}`] as Tensor).data].map(Number);
      const found = await one.engine.score({ state: one.state, tokens, temperature: 1 });
      expect(found).toHaveLength(expected.length);
      expect(Math.max(...found.map((value, at) => Math.abs(value - expected[at]!)))).toBeLessThan(1e-4);
    }
  });

  async function loadedModel(folder: string) {
    const { outline } = await readModelFolder(folder);
    expect(outline.model_type).toMatch(/^qwen[23]$/);
    const engine = startEngine();
    const loadedState = await withEngineFolder(folder, { scratch }, (path) => engine.loadHf({ path }));
    return { engine, ...loadedState };
  }
});

test('shards, with byte order marks in config, index and generation_config, are loaded', async () => {
  const folder = writeBase(join(scratch, 'shards'));
  const names = Object.keys(baseTensors).sort();
  const shards = [names.slice(0, 5), names.slice(5)];
  const weight_map: Record<string, string> = {};
  shards.forEach((shard, i) => {
    const file = `model-0000${i + 1}-of-00002.safetensors`;
    writeTensors(join(folder, file), Object.fromEntries(shard.map((name) => [name, baseTensors[name]!])));
    for (const name of shard) weight_map[name] = file;
  });
  const write = (name: string, value: object): void =>
    writeFileSync(join(folder, name), `\uFEFF${JSON.stringify(value)}`);
  write('config.json', baseConfig);
  write('model.safetensors.index.json', { metadata: {}, weight_map });
  write('generation_config.json', { eos_token_id: [1, 2] });
  await expect(loaded(folder)).rejects.toThrow(/whichever is older/);
  rmSync(join(folder, 'model.safetensors'));
  expect((await loaded(folder)).weights).toBe((await loaded(base)).weights);
});

test('YaRN gives the whole context, from the config or from the run spec', async () => {
  const yarn = { rope_type: 'yarn' as const, factor: 2, original_max_position_embeddings: 48 };
  const own = writeBase(join(scratch, 'yarn'), {
    ...baseConfig,
    rope_parameters: { ...yarn, rope_theta: 1e4 },
  });
  const [one, other] = [await loaded(own), await loaded(base, yarn)];
  expect(one.architecture).toMatchObject({
    max_position_embeddings: 96,
    yarn: { factor: 2, original_max_position_embeddings: 48 },
  });
  expect(other.architecture).toEqual(one.architecture);
  expect(other.weights).toBe(one.weights);
  expect(await other.scores()).toEqual(await one.scores());
});

test('rope settings by type of layer give the engine their theta', async () => {
  const { rope_parameters: _own, rope_scaling: _scaling, rope_theta: _theta, ...bare } = baseConfig;
  const full_attention = { rope_type: 'default', rope_theta: 5e5 };
  const sliding_attention = { rope_type: 'default', rope_theta: 1e4 };
  const folder = writeBase(join(scratch, 'by-type'), {
    ...bare,
    rope_parameters: { full_attention, sliding_attention },
  });
  const plain = writeBase(join(scratch, 'plain'), { ...bare, rope_parameters: full_attention });
  const [one, other] = [await loaded(folder), await loaded(plain)];
  expect(one.architecture).toMatchObject({ rope_theta: 5e5 });
  expect(one.architecture).toEqual(other.architecture);
  expect(one.weights).toBe(other.weights);
  expect(await one.scores()).toEqual(await other.scores());
});
