// Models from folders, LoRA, references and stop texts, through the engine's protocol.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { stateFileDigest, weightsFileDigest } from '../../src/policy/state-file.js';
import type { NativeEngine } from '../../src/engine/native/native-engine.js';
import type { RandomModel } from '../../src/engine/file-engine.js';
import {
  generation,
  startEngine,
  temporaryPath,
  tinyModel,
  transcript,
  writeUpdate,
} from './engine-fixture.js';

const lora = { rank: 4, alpha: 8, targets: ['q_proj', 'v_proj', 'down_proj'] as const, seed: 3 };
const trainedByLora = { lora: { ...lora, targets: [...lora.targets] } };

const families: [string, RandomModel][] = [
  ['qwen3, tied', tinyModel],
  [
    'qwen2, untied',
    {
      ...tinyModel,
      architecture: { ...tinyModel.architecture, model_type: 'qwen2', tie_word_embeddings: false },
    },
  ],
  [
    'qwen3 with YaRN',
    {
      ...tinyModel,
      architecture: { ...tinyModel.architecture, yarn: { factor: 2, original_max_position_embeddings: 128 } },
    },
  ],
];

let folders = 0;
async function folderOf(engine: NativeEngine, model: RandomModel = tinyModel, dtype: 'F32' | 'BF16' = 'F32') {
  const { state, weights } = await engine.loadRandom(model);
  const path = temporaryPath(`model-${(folders += 1)}`);
  await engine.exportHf({ state, path, dtype, adapters: 'merged', eos_tokens: [] });
  return { path, state, weights };
}

describe('a Hugging Face folder', () => {
  it.each(families)('gives the same weights that were exported to it, bit for bit: %s', async (_, model) => {
    const engine = startEngine();
    const { path, state, weights } = await folderOf(engine, model);
    const fresh = startEngine();
    const loaded = await fresh.loadHf({ path });
    expect(loaded).toMatchObject({ state, weights, architecture: model.architecture });
    const tokens = transcript(40);
    const scores = (one: NativeEngine) => one.score({ state, tokens, temperature: 1 });
    expect(await scores(fresh)).toEqual(await scores(engine));
    expect(loaded.memory.total).toBeGreaterThan(0);
    expect(loaded.memory.available).toBeGreaterThan(loaded.memory.total);
  });

  it('in bfloat16 gives nearly the same model', async () => {
    const engine = startEngine();
    const { path, state, weights } = await folderOf(engine, tinyModel, 'BF16');
    const tokens = transcript(40);
    const exact = await engine.score({ state, tokens, temperature: 1 });
    const loaded = await engine.loadHf({ path });
    expect(loaded.weights).not.toBe(weights);
    const near = await engine.score({ state: loaded.state, tokens, temperature: 1 });
    near.forEach((logprob, at) => expect(Math.abs(logprob - exact[at]!)).toBeLessThan(0.1));
  });

  it('that is damaged is refused; the error names file and key, and the held state stays', async () => {
    const engine = startEngine();
    const { path, state } = await folderOf(engine);
    const config = join(path, 'config.json');
    const settings = JSON.parse(readFileSync(config, 'utf8')) as object;
    const change = (changed: object): void =>
      writeFileSync(config, JSON.stringify({ ...settings, ...changed }));
    change({ model_type: 'llama' });
    await expect(engine.loadHf({ path })).rejects.toMatchObject({
      code: 'BadFile',
      message: expect.stringMatching(/config\.json.*llama.*qwen3/),
    });
    change({ hidden_size: 128 });
    await expect(engine.loadHf({ path })).rejects.toMatchObject({ code: 'BadFile' });
    await expect(engine.loadHf({ path: temporaryPath('nowhere') })).rejects.toMatchObject({
      code: 'BadFile',
    });
    expect(await engine.held()).toMatchObject({ state });
  });

  it('is not written over an existing folder', async () => {
    const engine = startEngine();
    const { path, state } = await folderOf(engine);
    const request = { state, path, dtype: 'F32', adapters: 'merged', eos_tokens: [] } as const;
    await expect(engine.exportHf(request)).rejects.toMatchObject({ code: 'BadInput' });
  });
});

describe('a weights file', () => {
  it('has the digest that the engine reports and TypeScript computes, and loads as the same model', async () => {
    const engine = startEngine();
    const { state, weights } = await engine.loadRandom(tinyModel);
    const path = temporaryPath('weights.safetensors');
    const saved = await engine.saveWeights(weights, path);
    expect(saved).toMatchObject({ weights, files: [{ path }] });
    expect(await weightsFileDigest(path)).toBe(weights);
    const fresh = startEngine();
    expect(await fresh.loadWeights({ path })).toMatchObject({
      state,
      weights,
      architecture: tinyModel.architecture,
    });
  });
});

describe('a state file', () => {
  it.each<[string, Partial<RandomModel>]>([
    ['of all weights', {}],
    ['with moments in 8 bits', { moments: 'int8' }],
    ['of adapters', trainedByLora],
  ])('%s has the digest that TypeScript computes', async (name, trained) => {
    const engine = startEngine();
    const { state } = await engine.loadRandom({ ...tinyModel, ...trained });
    const { state: next } = await engine.update(writeUpdate(state, 1));
    const path = temporaryPath(`${name}.safetensors`);
    await engine.saveState(next, path);
    expect(await stateFileDigest(path)).toBe(next);
  });
});

describe('LoRA', () => {
  it('keeps the base weights, and its first adapters change nothing', async () => {
    const engine = startEngine();
    const { path, state, weights } = await folderOf(engine);
    const tokens = transcript(40);
    const base = await engine.score({ state, tokens, temperature: 1 });
    const loaded = await engine.loadHf({ path, ...trainedByLora });
    expect(loaded.weights).toBe(weights);
    expect(loaded.state).not.toBe(state);
    expect(await engine.score({ state: loaded.state, tokens, temperature: 1 })).toEqual(base);
    const { state: next } = await engine.update(writeUpdate(loaded.state, 1));
    expect(await engine.held()).toMatchObject({ state: next, weights });
    expect(await engine.score({ state: next, tokens, temperature: 1 })).not.toEqual(base);
  });

  it('is restored only over its own base: from a folder, from a weights file, or as held', async () => {
    const engine = startEngine();
    const { path: folder, weights } = await folderOf(engine);
    const file = temporaryPath('base.safetensors');
    await engine.saveWeights(weights, file);
    const { state } = await engine.loadHf({ path: folder, ...trainedByLora });
    const { state: next } = await engine.update(writeUpdate(state, 1));
    const path = temporaryPath('adapters.safetensors');
    await engine.saveState(next, path);
    const after = (await engine.update(writeUpdate(next, 2))).state;

    for (const base of [folder, file]) {
      const fresh = startEngine();
      expect(await fresh.loadState({ path, base })).toMatchObject({ state: next, weights });
      expect((await fresh.update(writeUpdate(next, 2))).state).toBe(after);
      // The engine now holds the base weights, so `base` is not needed.
      expect(await fresh.loadState({ path })).toMatchObject({ state: next, weights });
    }

    const other = startEngine();
    const { path: otherFolder } = await folderOf(other, { ...tinyModel, seed: 8 });
    await expect(other.loadState({ path, base: otherFolder })).rejects.toMatchObject({
      code: 'WrongBase',
      message: expect.stringContaining(weights),
    });
    await expect(startEngine().loadState({ path })).rejects.toMatchObject({ code: 'WrongBase' });
  });

  it('is exported merged, as a model with nearly the same scores, or as an adapter', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom({ ...tinyModel, ...trainedByLora });
    const { state: next } = await engine.update({ ...writeUpdate(state, 1), learning_rates: [0.01, 0.01] });
    const tokens = transcript(40);
    const scores = await engine.score({ state: next, tokens, temperature: 1 });
    const [merged, peft] = [temporaryPath('merged'), temporaryPath('peft')];
    const request = { state: next, dtype: 'F32', eos_tokens: [3] } as const;
    await engine.exportHf({ ...request, path: merged, adapters: 'merged' });
    await engine.exportHf({ ...request, path: peft, adapters: 'peft', base_model: 'some/base' });
    expect(JSON.parse(readFileSync(join(peft, 'adapter_config.json'), 'utf8'))).toMatchObject({
      peft_type: 'LORA',
      ...{ r: 4, lora_alpha: 8, base_model_name_or_path: 'some/base' },
    });
    expect(JSON.parse(readFileSync(join(merged, 'generation_config.json'), 'utf8'))).toEqual({
      eos_token_id: 3,
    });
    expect(existsSync(join(peft, 'adapter_model.safetensors'))).toBe(true);
    const whole = startEngine();
    const loaded = await whole.loadHf({ path: merged });
    const near = await whole.score({ state: loaded.state, tokens, temperature: 1 });
    near.forEach((logprob, at) => expect(logprob).toBeCloseTo(scores[at]!, 4));
    expect(near).not.toEqual(await engine.score({ state: next, tokens: transcript(40, 2), temperature: 1 }));
  });
});

describe('a reference', () => {
  const kl = { kl_weight: 0.1, kl_estimator: 'k3' as const };

  it('is set from the held weights or from a file, and an update names the reference', async () => {
    const engine = startEngine();
    const { state, weights } = await engine.loadRandom(tinyModel);
    const path = temporaryPath('reference.safetensors');
    await engine.saveWeights(weights, path);
    const request = writeUpdate(state, 1);
    const withKl = { ...request, loss: { ...request.loss, ...kl } };
    await expect(engine.update({ ...withKl, reference: weights })).rejects.toMatchObject({
      code: 'WrongReference',
    });
    expect(await engine.setReference({ held: true })).toBe(weights);
    expect(await engine.held()).toMatchObject({ reference: weights });
    const first = await engine.update({ ...withKl, reference: weights });
    const second = await engine.update({
      ...writeUpdate(first.state, 2),
      loss: withKl.loss,
      reference: weights,
    });
    expect(second.applied).toBe(true);

    const fresh = startEngine();
    await fresh.loadRandom(tinyModel);
    expect(await fresh.setReference({ path })).toBe(weights);
    expect((await fresh.update({ ...withKl, reference: weights })).state).toBe(first.state);
    expect(await fresh.setReference(null)).toBeNull();
    expect(await fresh.held()).toMatchObject({ reference: null });
  });
});

describe('stop texts', () => {
  /** Token 32 + i is the i-th printable character, so a text has one token per character. */
  const vocabulary = Array.from({ length: 96 }, (_, id) => Buffer.from(String.fromCharCode(32 + id)));
  const textOf = (tokens: readonly number[]): string =>
    Buffer.concat(tokens.map((id) => vocabulary[id]!)).toString();

  it('end a generation with the token that completes a stop text', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const prompt = transcript(12);
    const free = await engine.generate(generation(state, prompt));
    const stop = textOf(free.tokens.slice(6, 9));
    const request = generation(state, prompt, { stop_strings: ['never said', stop] });
    await expect(engine.generate(request)).rejects.toMatchObject({ code: 'BadInput' });
    await engine.setVocabulary(vocabulary);
    const stopped = await engine.generate(request);
    const end = textOf(free.tokens).indexOf(stop) + stop.length;
    expect(stopped).toEqual({
      tokens: free.tokens.slice(0, end),
      logprobs: free.logprobs.slice(0, end),
      finish: 'stop_string',
    });
  });
});

describe('truncated sampling', () => {
  it('samples from the most likely tokens, with log-probs of the full distribution', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const prompt = transcript(12);
    const seeds = [1, 2, 3].map((seed) => ({ ...generation(state, prompt).key, seed }));
    const greedy = await Promise.all(
      seeds.map((key) => engine.generate(generation(state, prompt, { key, top_k: 1 }))),
    );
    expect(greedy[1]).toEqual(greedy[0]);
    expect(greedy[2]).toEqual(greedy[0]);
    const tokens = [...prompt, ...greedy[0]!.tokens];
    const scored = await engine.score({ state, tokens, temperature: 1 });
    expect(scored.slice(prompt.length - 1)).toEqual(greedy[0]!.logprobs);
    const narrow = await engine.generate(generation(state, prompt, { top_p: 1e-6 }));
    expect(narrow).toEqual(greedy[0]);
    const whole = await engine.generate(generation(state, prompt, { top_p: 1 }));
    expect(whole).toEqual(await engine.generate(generation(state, prompt)));
  });
});
