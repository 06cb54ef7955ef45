// A run that begins with a Hugging Face folder, with LoRA and with all weights. It needs the folder once; then the store has everything.
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { auditRun } from '../../src/activities/reports/audit-run.js';
import { takeUpModel } from '../../src/policy/model-assets.js';
import { exportModel } from '../../src/policy/model-export.js';
import type { NodeDeps } from '../../src/activities/node-deps.js';
import { saveState, uploadCheckpoint } from '../../src/activities/step/save-state.js';
import { weightsFileDigest } from '../../src/policy/state-file.js';
import type { RandomModel } from '../../src/engine/file-engine.js';
import { readModelFolder } from '../../src/models/model-folder.js';
import type { WeightsManifest } from '../../src/spec/records/manifests.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { canonicalText } from '../../src/store/records/canonical.js';
import { sha256Hex } from '../../src/base/sha256.js';
import { weightsFileKey, weightsManifestKey } from '../../src/store/record-keys.js';
import { readBase, readRun, readState } from '../../src/store/runs/run-records.js';
import { verifyWeights } from '../../src/store/files/weights.js';
import { type Harness, lastSftStep, run, startHarness, tamper } from '../activities/fixture.js';
import { environments, harness, useHarness } from '../activities/own-harness.js';

const lora = { rank: 4, alpha: 8 };
const adapters = {
  lora: { ...lora, targets: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] },
};

useHarness();
/** A model folder that is copied for each test. */
let original: string;
let folder: string;

beforeAll(async () => {
  original = join(mkdtempSync(join(tmpdir(), 'longhaul-folders-')), 'original');
  const maker = await startHarness(environments);
  const model = maker.spec['model'] as { tokenizer: string; chat_template: string };
  const { state } = await maker.engine.loadRandom(drawn(maker, 11));
  await exportModel(maker.engine, {
    ...{ state, to: original, dtype: 'BF16', adapters: 'merged', maxPositionEmbeddings: 512 },
    eosTokens: [],
    tokenizer: readFileSync(model.tokenizer, 'utf8'),
    template: readFileSync(model.chat_template, 'utf8'),
  });
  await maker.close();
});
afterAll(() => rmSync(join(original, '..'), { recursive: true, force: true }));
beforeEach(() => {
  folder = join(harness.folder, 'model');
  cpSync(original, folder, { recursive: true });
});

/** A random model with the harness's architecture. */
function drawn({ spec }: Harness, seed: number): RandomModel {
  const { architecture } = spec['model'] as Pick<RandomModel, 'architecture'>;
  return {
    architecture: { ...{ rms_norm_eps: 1e-6, tie_word_embeddings: true }, ...architecture },
    initializer_range: 0.04,
    seed,
  };
}

/** The harness's spec, but with the folder instead of random weights. */
function specOf(model: object = {}, generator: object = {}): Record<string, unknown> {
  const part = (key: string) => harness.spec[key] as Record<string, unknown>;
  return {
    ...harness.spec,
    model: { name: 'unit', path: folder, ...model },
    generator: { ...part('generator'), ...generator },
  };
}

const hold = (step: number, deps: NodeDeps) =>
  deps.holder.withState(run, step, 'visitor', (state) => Promise.resolve(state));
const save = (step: number, deps = harness.node) =>
  harness.attempt('save', () => saveState(deps, { run, step, owner: 1 }));
const upload = (step: number, deps = harness.node) =>
  harness.attempt('upload', () => uploadCheckpoint(deps, { run, step, owner: 1 }));

describe('a run from a folder', () => {
  test.each<[string, object]>([
    ['by LoRA', { lora }],
    ['in full', {}],
    ['in full, with moments in 8 bits', { moments: 'int8' }],
  ])('trains %s, and needs the folder only once', async (_, model) => {
    await harness.open(specOf(model));
    const committed = await harness.advance(lastSftStep + 2);
    const { store } = harness;
    const { identity } = await readBase(store, run);
    expect(committed?.state).not.toBe(identity.state);
    await verifyWeights(store, identity.weights!);
    await save(lastSftStep);
    await upload(lastSftStep);
    rmSync(folder, { recursive: true });

    const other = harness.secondNode();
    expect(await hold(lastSftStep + 2, other)).toBe(committed?.state);
    expect(harness.said.at(-1)).toBe(
      `restored ${run} step ${lastSftStep + 2}: checkpoint ${lastSftStep} and 2 logged updates`,
    );
    const third = harness.secondNode();
    expect(await hold(0, third)).toBe(identity.state);
  });

  test('has small checkpoints with LoRA: the base weights are in the store once', async () => {
    await harness.open(specOf({ lora }));
    await harness.advance(1);
    const { path } = await save(1);
    const { identity } = await readBase(harness.store, run);
    const weights = await harness.store.head(weightsFileKey(identity.weights!, 'weights.safetensors'));
    expect(readFileSync(path).length).toBeLessThan(weights!.size);
  });

  test.each<[string, object]>([
    ['by LoRA', { lora }],
    ['in full', {}],
  ])('may begin with a PEFT adapter and YaRN, which its step 0 holds, and trains on %s', async (_, model) => {
    // With factor 1, only the context grows, so that log-probs can be compared.
    const rope_scaling = { factor: 1, original_max_position_embeddings: 1024 };
    await harness.open(specOf({ lora }));
    await harness.advance(2);
    const adapter = join(harness.folder, 'adapter');
    const tokens = Array.from({ length: 60 }, (_token, i) => (i * 37) % 500);
    const assets = await readModelFolder(folder);
    const { engine } = harness.node.holder;
    const trained = await harness.node.holder.withState(run, 2, 'visitor', async (state) => {
      await exportModel(engine, {
        ...{ state, to: adapter, dtype: 'F32', adapters: 'peft', base_model: folder },
        ...{
          tokenizer: assets.tokenizer!,
          template: assets.chatTemplate!,
          maxPositionEmbeddings: null,
          eosTokens: [],
        },
      });
      return engine.score({ state, tokens, temperature: 1 });
    });
    const untrained = await harness.node.holder.withState(run, 0, 'visitor', (state) =>
      engine.score({ state, tokens, temperature: 1 }),
    );

    const second = await startHarness(environments);
    onTestFinished(() => second.close());
    const spec = specOf({ path: adapter, rope_scaling, ...model }, { max_sequence_length: 1024 });
    await second.open(spec);
    await second.open(spec);
    const committed = await second.advance(lastSftStep + 1);
    const { identity } = await readBase(second.store, run);
    expect(committed?.state).not.toBe(identity.state);
    rmSync(adapter, { recursive: true });
    rmSync(folder, { recursive: true });
    const { holder } = second.secondNode();
    const began = await holder.withState(run, 0, 'visitor', (state) =>
      holder.engine.score({ state, tokens, temperature: 1 }),
    );
    const gap = (scores: number[]) =>
      Math.max(...scores.map((logprob, at) => Math.abs(logprob - began[at]!)));
    expect(gap(trained)).toBeLessThan(1e-4);
    expect(gap(untrained)).toBeGreaterThan(1e-3);
    expect(readdirSync(join(second.folder, 'node-2', 'weights'))).toEqual([
      `${identity.weights}.safetensors`,
    ]);
  });

  test('reads a tokenizer with a byte order mark, and a later start sees no change', async () => {
    const file = join(folder, 'tokenizer.json');
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, `\uFEFF${text}`);
    await harness.open(specOf({ lora }));
    await harness.open(specOf({ lora }));
    const taken = await harness.store.get(`assets/${(await readRun(harness.store, run)).tokenizer}`);
    expect(Buffer.from(taken!).toString()).toBe(text);
  });

  test('uses the template of tokenizer_config.json, and a later start sees no change', async () => {
    const template = readFileSync(join(folder, 'chat_template.jinja'), 'utf8');
    rmSync(join(folder, 'chat_template.jinja'));
    writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify({ chat_template: template }));
    await harness.open(specOf({ lora }));
    await harness.open(specOf({ lora }));
    const taken = await harness.store.get(`assets/${(await readRun(harness.store, run)).chat_template}`);
    expect(Buffer.from(taken!).toString()).toBe(template);
  });
});

describe('base weights in the store', () => {
  const prepared = async (): Promise<{ weights: string; file: string }> => {
    await harness.open(specOf({ lora }));
    await harness.advance(2);
    await save(2);
    await upload(2);
    const weights = (await readBase(harness.store, run)).identity.weights!;
    return { weights, file: join(harness.folder, 'node-2', 'weights', `${weights}.safetensors`) };
  };

  test('are fetched again if a node’s own file is damaged, and no checkpoint is lost', async () => {
    const { file } = await prepared();
    const other = harness.secondNode();
    await hold(2, other);
    const bytes = readFileSync(file);
    bytes[bytes.length - 5]! ^= 0xff;
    writeFileSync(file, bytes);
    await other.holder.engine.restart();
    await hold(2, other).catch(() => undefined);
    expect(await hold(2, other)).toBe(await readState(harness.store, run, 2));
    expect(harness.said.at(-1)).toBe(`restored ${run} step 2: its saved state`);
    expect(readdirSync(join(harness.folder, 'node-2', 'weights'))).toHaveLength(1);
  });

  test('are refused if they were changed; the error names their key', async () => {
    const { weights } = await prepared();
    const key = weightsFileKey(weights, 'weights.safetensors');
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
    await tamper(harness.store, key, (bytes) => {
      bytes[bytes.length - 5]! ^= 0xff;
      return bytes;
    });
    const { violations } = await auditRun(harness.store, run);
    expect(violations.filter(({ rule }) => rule === 'R31')).toEqual([
      { rule: 'R31', key: weightsManifestKey(weights), problem: expect.stringContaining('sha256') as string },
    ]);
    await expect(hold(2, harness.secondNode())).rejects.toThrow(new RegExp(`${key}: .*sha256`));
  });

  describe('are not replaced by other, undamaged weights', () => {
    /** Weights of the same shape as the run's base weights, in an undamaged file. */
    const others = async (): Promise<{ wanted: string; other: string; path: string }> => {
      await harness.open(specOf());
      await harness.advance(0);
      const { weights: wanted } = (await readBase(harness.store, run)).identity;
      const path = join(harness.folder, 'others.safetensors');
      const { weights: other } = await harness.engine.loadRandom(drawn(harness, 12));
      await harness.engine.saveWeights(other, path);
      return { wanted: wanted!, other, path };
    };

    test('in a node’s file: the right weights are fetched again', async () => {
      const { wanted, other, path } = await others();
      const state = await readState(harness.store, run, 0);
      const node = harness.secondNode();
      await hold(0, node);
      const file = join(harness.folder, 'node-2', 'weights', `${wanted}.safetensors`);
      cpSync(path, file);
      await node.holder.engine.restart();

      expect(await hold(0, node)).toBe(state);
      expect(harness.said).toContain(
        `${file} is not usable (it holds the weights ${other}): fetching it again`,
      );
      expect(await weightsFileDigest(file)).toBe(wanted);
    });

    test('in the store under the same digest: they are refused, and the node keeps no file of them', async () => {
      const { wanted, other, path } = await others();
      const bytes = readFileSync(path);
      await tamper(harness.store, weightsFileKey(wanted, 'weights.safetensors'), () => bytes);
      await tamper(harness.store, weightsManifestKey(wanted), (manifest) => {
        const { files, ...rest } = JSON.parse(manifest.toString()) as WeightsManifest;
        const listed = files.map((file) => ({ ...file, size: bytes.length, sha256: sha256Hex(bytes) }));
        return canonicalText({ ...rest, files: listed });
      });

      await expect(hold(0, harness.secondNode())).rejects.toMatchObject({
        name: 'CorruptCheckpoint',
        message: expect.stringContaining(`it holds the weights ${other}`) as string,
      });
      expect(readdirSync(join(harness.folder, 'node-2', 'weights'))).toEqual([]);
    });
  });
});

describe('a model folder is refused at the run’s start', () => {
  test.each<[string, () => Record<string, unknown>, RegExp]>([
    [
      'that does not exist',
      () => specOf({ path: '/nowhere/model' }),
      /model\.path.*there is no folder \/nowhere\/model/,
    ],
    [
      'whose context is too short',
      () => specOf({}, { max_sequence_length: 513 }),
      /generator\.max_sequence_length.*513 is more than 512/,
    ],
    [
      'with a shard missing',
      () => {
        renameSync(join(folder, 'model.safetensors'), join(folder, 'other.safetensors'));
        return specOf();
      },
      /model\.path.*has neither model\.safetensors nor/,
    ],
    [
      'with weights that are cut short',
      () => {
        const file = join(folder, 'model.safetensors');
        truncateSync(file, statSync(file).size - 1);
        return specOf();
      },
      /model\.path.*model\.safetensors .*it is cut short/,
    ],
    [
      'with an adapter beside its weights that names another base',
      () => {
        const config = { peft_type: 'LORA', base_model_name_or_path: 'Qwen/Qwen3-0.6B' };
        writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify(config));
        writeFileSync(join(folder, 'adapter_model.safetensors'), '');
        return specOf();
      },
      /model\.path.*base_model_name_or_path is "Qwen\/Qwen3-0\.6B", but .* has weights of its own too/,
    ],
    [
      'of another family',
      () => {
        const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object;
        writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, model_type: 'llama' }));
        return specOf();
      },
      /model_type is "llama"; expected one that is supported/,
    ],
    [
      'with quantised weights',
      () => {
        const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object;
        const quantization_config = { quant_method: 'fp8' };
        writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, quantization_config }));
        return specOf();
      },
      /model\.path.*quantization_config is \{"quant_method":"fp8"\}; expected none/,
    ],
  ])('%s', async (_, spec, message) => {
    await expect(harness.open(spec())).rejects.toMatchObject({
      name: 'InvalidSpec',
      message: expect.stringMatching(message) as string,
    });
  });

  test('and later by the node if only the engine sees the problem: the error names the file', async () => {
    const file = join(folder, 'model.safetensors');
    const bytes = readFileSync(file);
    bytes.fill(0xff, bytes.length - 4);
    writeFileSync(file, bytes);
    await harness.open(specOf());
    await expect(harness.advance(0)).rejects.toMatchObject({
      name: 'BadModelFolder',
      message: expect.stringMatching(/model\.safetensors: .*nan/i) as string,
    });
  });

  test('and later by the node if the folder was changed in the meantime', async () => {
    await harness.open(specOf({ lora }));
    const file = join(folder, 'model.safetensors');
    const bytes = readFileSync(file);
    bytes[bytes.length - 5]! ^= 0xff;
    writeFileSync(file, bytes);
    await expect(harness.advance(0)).rejects.toThrow(/is not the one that run "unit" was started with/);
    rmSync(folder, { recursive: true });
    await expect(harness.advance(0)).rejects.toThrow(
      /there is no folder .* only the first node of a run needs it/,
    );
  });
});

describe('an exported model', () => {
  test('is a folder that a run can begin with, and appears only when it is complete', async () => {
    await harness.open(specOf(adapters));
    await harness.advance(1);
    const to = join(harness.folder, 'exported');
    const { holder } = harness.node;
    const assets = await readModelFolder(folder);
    const request = {
      ...({ to, dtype: 'F32', adapters: 'merged', maxPositionEmbeddings: 512 } as const),
      ...{ tokenizer: assets.tokenizer!, template: assets.chatTemplate!, eosTokens: assets.eosTokens },
    };
    await holder.withState(run, 1, 'visitor', async (state) => {
      const wrong = { ...request, state: 'f'.repeat(64) };
      await expect(exportModel(holder.engine, wrong)).rejects.toMatchObject({ code: 'WrongState' });
      expect(readdirSync(harness.folder).filter((name) => name.startsWith('exported'))).toEqual([]);
      const exported = await exportModel(holder.engine, { ...request, state });
      expect(exported.files.map(({ path }) => path)).toEqual(readdirSync(to).sort());
      await expect(exportModel(holder.engine, { ...request, state })).rejects.toThrow(/exists already/);
    });
    expect(existsSync(join(to, 'model.safetensors'))).toBe(true);
    const read = await readModelFolder(to);
    expect(read.outline).toEqual(assets.outline);
    expect(read.eosTokens).toEqual(assets.eosTokens);
  });

  test('keeps padding token and length of its folder’s tokenizer_config.json; without that file, takes them from other files', async () => {
    const own = JSON.parse(readFileSync(join(folder, 'tokenizer_config.json'), 'utf8')) as object;
    const file = join(folder, 'tokenizer_config.json');
    const [pad, model_max_length] = ['<|im_start|>', 131_072];
    writeFileSync(file, JSON.stringify({ ...own, pad_token: { content: pad }, model_max_length }));
    await harness.open(specOf());
    await harness.advance(1);
    const { holder } = harness.node;
    const assets = await readModelFolder(folder);
    const exportedTo = async (name: string): Promise<unknown> => {
      const to = join(harness.folder, name);
      await holder.withState(run, 1, 'visitor', (state) =>
        exportModel(holder.engine, {
          ...{ state, to, dtype: 'F32', adapters: 'merged', base_model: folder, maxPositionEmbeddings: null },
          ...{ tokenizer: assets.tokenizer!, template: assets.chatTemplate!, eosTokens: assets.eosTokens },
        }),
      );
      return JSON.parse(readFileSync(join(to, 'tokenizer_config.json'), 'utf8'));
    };
    expect(await exportedTo('kept')).toMatchObject({ pad_token: pad, model_max_length });
    rmSync(file);
    const longest = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object;
    expect(await exportedTo('without')).toMatchObject({
      model_max_length: (longest as { max_position_embeddings: number }).max_position_embeddings,
    });
  });
});

test.each(['lora', 'folder'])('presets/%s.yaml describes a run from a folder', async (name) => {
  const file = resolve(`presets/${name}.yaml`);
  const preset = parse(readFileSync(file, 'utf8')) as { model: object };
  const spec = parseRunSpec({ ...preset, model: { ...preset.model, path: folder } }, { file });
  expect(spec.model).toMatchObject({ path: folder, tokenizer: join(folder, 'tokenizer.json') });
  expect(spec.model.lora !== undefined).toBe(name === 'lora');
  expect((await takeUpModel(spec)).tokenizer).toBe(readFileSync(join(folder, 'tokenizer.json'), 'utf8'));
});
