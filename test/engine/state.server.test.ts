import { readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { describe, expect, it } from 'vitest';
import { sha256Hex } from '../../src/base/sha256.js';
import type { LoadedState } from '../../src/engine/file-engine.js';
import {
  applyUpdates,
  generation,
  startEngine,
  temporaryPath,
  tinyModel,
  transcript,
  writeUpdate,
} from './engine-fixture.js';

describe('the state', () => {
  it('depends only on architecture, range and seed', async () => {
    const engine = startEngine();
    expect(await engine.held()).toBeNull();
    const first = await engine.loadRandom(tinyModel);
    expect(await engine.held()).toEqual({ ...heldBy(first), reference: null });
    expect(heldBy(await startEngine().loadRandom(tinyModel))).toEqual(heldBy(first));
    expect((await engine.loadRandom({ ...tinyModel, seed: 8 })).state).not.toBe(first.state);
  });

  it('must be the state that the call names', async () => {
    const engine = startEngine();
    const other = sha256Hex('another state');
    await expect(engine.generate(generation(other, [1]))).rejects.toMatchObject({ code: 'WrongState' });
    const { state } = await engine.loadRandom(tinyModel);
    const wrong = { code: 'WrongState', message: expect.stringContaining(state) };
    await expect(engine.generate(generation(other, [1]))).rejects.toMatchObject(wrong);
    await expect(engine.score({ state: other, tokens: [1, 2], temperature: 1 })).rejects.toMatchObject(wrong);
    await expect(engine.saveState(other, temporaryPath('other'))).rejects.toMatchObject(wrong);
    await expect(engine.update({ ...writeUpdate(state, 1), state: other })).rejects.toMatchObject(wrong);
  });

  it('is the same bit for bit after save, kill -9 and load, and so is further training', async () => {
    const engine = startEngine();
    const base = await engine.loadRandom(tinyModel);
    const middle = await applyUpdates(engine, base.state, 1, 3);
    const path = temporaryPath('state.safetensors');
    const saved = await engine.saveState(middle, path);
    const bytes = readFileSync(path);
    expect(saved.files).toEqual([{ path, size: bytes.length }]);
    const end = await applyUpdates(engine, middle, 4, 6);

    process.kill(engine.pid()!, 'SIGKILL');
    // The first call after the death fails; the next one starts a new process.
    await engine.stats().catch(() => {});
    expect(await engine.held()).toBeNull();
    expect(await engine.loadState({ path })).toMatchObject({ state: middle });
    expect(await applyUpdates(engine, middle, 4, 6)).toBe(end);
    await engine.loadState({ path });
    const again = temporaryPath('again.safetensors');
    await engine.saveState(middle, again);
    expect(readFileSync(again).equals(bytes)).toBe(true);
  });

  it('is saved during generations, and two saves at the same time take turns', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const paths = [temporaryPath('left.safetensors'), temporaryPath('right.safetensors')];
    const [sampled, left, right] = await Promise.all([
      engine.generate(generation(state, transcript(20), { max_new_tokens: 200 })),
      ...paths.map((path) => engine.saveState(state, path)),
    ]);
    expect(sampled.tokens).toHaveLength(200);
    const [one, other] = [left, right].map((saved) => readFileSync(saved!.files[0]!.path));
    expect(one!.equals(other!)).toBe(true);
  });

  it('is not loaded from a damaged file, and the held state stays', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const path = temporaryPath('whole.safetensors');
    await engine.saveState(state, path);
    const bytes = readFileSync(path);
    const damaged = temporaryPath('damaged.safetensors');
    const headerLength = Number(bytes.readBigUInt64LE(0));
    const header = bytes.toString('utf8', 8, 8 + headerLength);
    const edited = (text: string) =>
      Buffer.concat([
        bytes.subarray(0, 8),
        Buffer.from(text.padEnd(headerLength)),
        bytes.subarray(8 + headerLength),
      ]);
    const damages: [Buffer, RegExp][] = [
      [bytes.subarray(0, bytes.length - 4), /outside the file/],
      [bytes.subarray(0, 100), /does not fit/],
      [edited(header.replace('"adam.m.model.norm.weight"', '"adam.m.model.form.weight"')), /is missing/],
      [edited(header.replace('"optimizer_steps":"0"', '"optimizer_steps":"x"')), /optimizer_steps/],
      [edited(header.replace(/\[\d+,/, '[8,')), /data_offsets|gap/],
      [edited(header.slice(0, -20)), /broken header/],
    ];
    for (const [content, message] of damages) {
      writeFileSync(damaged, content);
      const refused = engine.loadState({ path: damaged });
      await expect(refused).rejects.toMatchObject({
        code: 'BadFile',
        message: expect.stringMatching(message),
      });
    }
    // These errors say nothing about the file, which may be intact.
    await expect(engine.loadState({ path: temporaryPath('absent') })).rejects.toMatchObject({
      code: 'Io',
      message: expect.stringMatching(/cannot open/),
    });
    await expect(engine.loadState({ path: dirname(path) })).rejects.toMatchObject({ code: 'Io' });
    expect(await engine.held()).toMatchObject({ state, lastStepId: null });
  });
});

describe('update', () => {
  it('changes the state once for each step id, however often it is sent', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const request = writeUpdate(state, 1);
    const [first, second] = await Promise.all([engine.update(request), engine.update(request)]);
    expect(first.applied).toBe(true);
    expect(first.state).not.toBe(state);
    expect(second).toEqual(first);
    expect(await engine.update(request)).toEqual(first);
    expect((await engine.stats())['updates']).toBe(1);
    expect(await engine.held()).toMatchObject({ state: first.state, lastStepId: request.step_id });
    expect(first.metrics['loss']).toBeTypeOf('number');
  });

  it('reports progress by shards, and no progress if the result is known', async () => {
    const engine = startEngine({ threads: 2 });
    const { state } = await engine.loadRandom(tinyModel);
    const request = writeUpdate(state, 1, { miniBatches: 2, prompts: 3 });
    const told: { done: number; total: number }[] = [];
    await engine.update(request, (progress) => told.push(progress));
    const total = told.at(-1)?.total ?? 0;
    expect(total).toBeGreaterThan(1);
    expect(told).toEqual(Array.from({ length: total }, (_, at) => ({ done: at + 1, total })));
    await engine.update(request, (progress) => told.push(progress));
    expect(told).toHaveLength(total);
  });

  it('that is cancelled changes nothing, and is applied once when it is sent again', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const request = writeUpdate(state, 1, { miniBatches: 8, prompts: 8, answers: [60, 60] });
    const expected = await (async () => {
      const other = startEngine();
      await other.loadRandom(tinyModel);
      return other.update(request);
    })();
    const stop = new AbortController();
    const told: number[] = [];
    const cancelled = engine.update(
      request,
      ({ done, total }) => {
        told.push(done / total);
        stop.abort();
      },
      stop.signal,
    );
    await expect(cancelled).rejects.toMatchObject({ code: 'Cancelled' });
    expect(told.at(-1)).toBeLessThan(1);
    expect(await engine.held()).toMatchObject({ state, lastStepId: null });
    expect(await engine.update(request)).toEqual(expected);
    expect((await engine.stats())['updates']).toBe(1);
  });

  it('waits for running generations, and later generations see only the new state', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const before = engine.generate(generation(state, transcript(20), { max_new_tokens: 200 }));
    const updated = engine.update(writeUpdate(state, 1));
    const late = engine.generate(generation(state, transcript(20)));
    late.catch(() => {});
    const { tokens } = await before;
    expect(tokens).toHaveLength(200);
    const { state: next } = await updated;
    await expect(late).rejects.toMatchObject({ code: 'WrongState' });
    // The cache of the old weights is dropped: prompt and answer are computed again.
    const scored = await engine.score({ state: next, tokens: [...transcript(20), 1], temperature: 1 });
    const sampled = await engine.generate(generation(next, transcript(20), { max_new_tokens: 1 }));
    if (sampled.tokens[0] === 1) expect(sampled.logprobs[0]).toBe(scored[19]);
    const again = await engine.score({
      state: next,
      tokens: [...transcript(20), ...sampled.tokens],
      temperature: 1,
    });
    expect(again[19]).toBe(sampled.logprobs[0]);
  });

  it('gives the same state with any number of threads', async () => {
    const ends = [];
    for (const threads of [1, 2]) {
      const engine = startEngine({ threads });
      const { state } = await engine.loadRandom(tinyModel);
      ends.push(await applyUpdates(engine, state, 1, 3));
    }
    expect(ends[1]).toBe(ends[0]);
  });

  it.each([
    ['a flipped byte', (bytes: Buffer) => bytes.fill(1, bytes.length - 3), /sha256 is/],
    ['a lost tail', (bytes: Buffer) => bytes.subarray(0, bytes.length - 8), /sha256 is/],
  ])('refuses a batch with %s as BadBatch and changes nothing', async (_, damage, message) => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const request = writeUpdate(state, 1);
    writeFileSync(request.batchPath, damage(readFileSync(request.batchPath)));
    await expect(engine.update(request)).rejects.toMatchObject({
      code: 'BadBatch',
      message: expect.stringMatching(message),
    });
    expect(await engine.held()).toMatchObject({ state, lastStepId: null });
  });

  it('refuses a batch that was made for another state or for other mini-batches', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const foreign = { ...writeUpdate(sha256Hex('another state'), 1), state };
    await expect(engine.update(foreign)).rejects.toMatchObject({
      code: 'BadBatch',
      message: expect.stringMatching(/was made for state/),
    });
    const fewer = { ...writeUpdate(state, 1), learning_rates: [1e-3] };
    await expect(engine.update(fewer)).rejects.toMatchObject({
      code: 'BadBatch',
      message: expect.stringMatching(/mini_batches/),
    });
    const absent = { ...writeUpdate(state, 1), batchPath: temporaryPath('absent') };
    await expect(engine.update(absent)).rejects.toMatchObject({
      code: 'Io',
      message: expect.stringMatching(/cannot open/),
    });
  });
});

function heldBy({ state, weights }: LoadedState) {
  return { state, weights, lastStepId: null };
}
