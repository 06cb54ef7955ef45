import { describe, expect, it } from 'vitest';
import { generation, startEngine, tinyModel, transcript } from './engine-fixture.js';

describe('generate', () => {
  it('gives the same tokens and log-probs alone, in a batch of 64, and with a cache too small for the batch', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const requests = Array.from({ length: 64 }, (_, i) =>
      generation(state, transcript(20 + (i % 7) * 9, i % 5), {
        key: { seed: 5, domain: 'train', step: 1, slot: i, sample: i % 3 },
      }),
    );
    const together = await Promise.all(requests.map((request) => engine.generate(request)));

    const fresh = startEngine();
    await fresh.loadRandom(tinyModel);
    for (const i of [0, 7, 33, 63]) expect(await fresh.generate(requests[i]!)).toEqual(together[i]);

    const cramped = startEngine({ kvCacheBytes: 0 });
    await cramped.loadRandom(tinyModel);
    expect(await Promise.all(requests.map((request) => cramped.generate(request)))).toEqual(together);
    const stats = await cramped.stats();
    expect(stats['preemptions']! + stats['evicted_blocks']!).toBeGreaterThan(0);
  });

  it('samples with log-probs that `score` reproduces bit for bit', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    for (const temperature of [1, 0.7]) {
      const prompt = transcript(45);
      const sampled = await engine.generate(generation(state, prompt, { temperature, max_new_tokens: 60 }));
      const scored = await engine.score({ state, tokens: [...prompt, ...sampled.tokens], temperature });
      expect(scored.slice(prompt.length - 1)).toEqual(sampled.logprobs);
    }
  });

  it('finds the last transcript in the cache and computes only the new tokens', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const prompt = transcript(70);
    const first = await engine.generate(generation(state, prompt));
    const before = await engine.stats();
    const second = [...prompt, ...first.tokens, ...transcript(10, 3)];
    const warm = await engine.generate(generation(state, second));
    const after = await engine.stats();
    // All tokens except the last sampled token were in the cache. That token and the ten new tokens are computed.
    expect(after['prefilled_tokens']! - before['prefilled_tokens']!).toBe(11);

    const cold = startEngine();
    await cold.loadRandom(tinyModel);
    expect(await cold.generate(generation(state, second))).toEqual(warm);
  });

  it('computes a group’s prompt once', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const prompt = transcript(120);
    await Promise.all(
      Array.from({ length: 8 }, (_, sample) =>
        engine.generate(
          generation(state, prompt, { key: { seed: 5, domain: 'train', step: 1, slot: 0, sample } }),
        ),
      ),
    );
    const stats = await engine.stats();
    // One sample computes the whole prompt; every other sample computes only the prompt's last token, because its logits are needed.
    expect(stats['prefilled_tokens']! + stats['reused_tokens']!).toBeGreaterThanOrEqual(8 * 119);
    expect(stats['prefilled_tokens']).toBeLessThanOrEqual(120 + 7);
  });

  it('ends after a stop token, which is part of the result, or at the limits', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const prompt = transcript(12);
    const free = await engine.generate(generation(state, prompt));
    expect(free).toMatchObject({ finish: 'length' });
    expect(free.tokens).toHaveLength(24);
    const stop = free.tokens[5]!;
    const stopped = await engine.generate(generation(state, prompt, { stop_tokens: [stop] }));
    expect(stopped.finish).toBe('stop');
    expect(stopped.tokens).toEqual(free.tokens.slice(0, free.tokens.indexOf(stop) + 1));
    const long = await engine.generate(generation(state, transcript(250), { max_new_tokens: 100 }));
    expect(long.tokens).toHaveLength(6);
  });

  it('samples other tokens for another sample, slot, step, domain or seed', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const base = generation(state, transcript(12));
    const keys = [
      {},
      { sample: 1 },
      { slot: 1 },
      { step: 2 },
      { domain: 'eval' as const },
      { seed: 6 },
      { seed: 5 + 2 ** 32 },
    ];
    const results = await Promise.all(
      keys.map((change) => engine.generate({ ...base, key: { ...base.key, ...change } })),
    );
    expect(new Set(results.map(({ tokens }) => tokens.join())).size).toBe(keys.length);
  });

  it('is cancelled within one decode step, and does not disturb other requests', async () => {
    const engine = startEngine();
    const { state } = await engine.loadRandom({
      ...tinyModel,
      architecture: { ...tinyModel.architecture, max_position_embeddings: 65_536 },
    });
    const other = engine.generate(generation(state, transcript(12), { max_new_tokens: 200 }));
    const controller = new AbortController();
    const endless = engine.generate(
      generation(state, transcript(30), { max_new_tokens: 60_000 }),
      controller.signal,
    );
    await other;
    const start = performance.now();
    controller.abort();
    await expect(endless).rejects.toMatchObject({ code: 'Cancelled' });
    expect(performance.now() - start).toBeLessThan(5_000);
    expect((await engine.stats())['running']).toBe(0);
  });

  it.each([
    ['a token outside the vocabulary', { tokens: [1, 96] }, /tokens\[1\] is 96/],
    ['no tokens', { tokens: [] }, /0 tokens/],
    ['too many tokens', { tokens: transcript(256) }, /256 tokens/],
    ['no temperature', { temperature: 0 }, /temperature/],
    [
      'a broken key',
      { key: { seed: 1, domain: 'train' as const, step: -1, slot: 0, sample: 0 } },
      /key\.step/,
    ],
    ['no room for new tokens', { max_new_tokens: 0 }, /max_new_tokens/],
  ])('refuses %s, naming the field', async (_, change, message) => {
    const engine = startEngine();
    const { state } = await engine.loadRandom(tinyModel);
    const refused = engine.generate(generation(state, transcript(4), change));
    await expect(refused).rejects.toMatchObject({
      code: 'BadInput',
      message: expect.stringMatching(message),
    });
  });
});

describe('bits', () => {
  it.each([
    ['one thread, scalar', { threads: 1, instructionSet: 'scalar' as const }],
    ['two threads, AVX2', { threads: 2, instructionSet: 'avx2' as const }],
    ['one thread, AVX-512', { threads: 1, instructionSet: 'avx512' as const }],
    ['two threads, AVX-512', { threads: 2, instructionSet: 'avx512' as const }],
  ])('are the same with %s as with the defaults', async (name, options) => {
    const reference = startEngine();
    const { state } = await reference.loadRandom(tinyModel);
    const request = generation(state, transcript(40), { max_new_tokens: 60 });
    const engine = startEngine(options);
    const info = await engine.info().catch((error: Error) => error);
    if (info instanceof Error) {
      expect(info.message).toMatch(/this machine has no/);
      return console.warn(`skipped: ${name}: ${info.message}`);
    }
    expect(info).toMatchObject(options);
    expect(await engine.loadRandom(tinyModel)).toMatchObject({ state });
    expect(await engine.generate(request)).toEqual(await reference.generate(request));
  });
});
