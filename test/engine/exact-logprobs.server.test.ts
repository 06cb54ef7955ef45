// Compares log-probs of rollouts with those of the trainer and of `score`, over batch sizes, threads, cache sizes and instruction sets. The
// reference is the portable code on one thread, one request at a time. Every variant must give the same bits.
import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { promptOf, quickstartModel } from '../../bench/engine/quickstart-model.js';
import { trainOn } from '../../bench/engine/train-on.js';
import { createNativeEngine, type NativeEngineOptions } from '../../src/engine/native/native-engine.js';
import type { RandomModel } from '../../src/engine/file-engine.js';
import type { GenerateResult } from '../../src/engine/policy-engine.js';
import type { Digest } from '../../src/spec/records/parts.js';
import { findEngine } from '../support/find-tools.js';

it('log-probs are the same bits over batch sizes, threads, cache sizes and instruction sets', async () => {
  const { architecture, ...model } = await quickstartModel();
  const small = { ...architecture, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 };
  const figures = await measureLogprobs({
    model: { ...model, architecture: small },
    ...{ requests: 8, newTokens: 12 },
  });
  if (figures.skipped.length > 0) console.log(`skipped on this machine: ${figures.skipped.join(', ')}`);
  expect(figures).toMatchObject({ difference_max: 0, differing_states: 0 });
  expect(figures.variants).toBeGreaterThan(0);
  expect(figures.compared).toBe(figures.variants * 8 * 12 * 3);
});

interface LogprobFigures {
  /** Largest difference of any variant's generated, scored or trained log-prob from the reference's generated one. */
  difference_max: number;
  /** Number of variants that reach another state than the reference after one update. */
  differing_states: number;
  compared: number;
  variants: number;
  skipped: string[];
}

interface LogprobPlan {
  model: RandomModel;
  requests: number;
  newTokens: number;
}

const instructionSets = ['avx512', 'avx2', 'scalar'] as const;
const temperature = 1;
/** Reported as the difference if a variant samples another token than the reference: log-probs of different tokens cannot be compared. */
const otherTokens = 1;

async function measureLogprobs(plan: LogprobPlan): Promise<LogprobFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-logprobs-'));
  const figures: LogprobFigures = {
    ...{ difference_max: 0, differing_states: 0, compared: 0, variants: 0, skipped: [] },
  };
  try {
    const reference = await observe({ threads: 1, instructionSet: 'scalar' }, 1, plan, folder, null);
    if (typeof reference === 'string') throw new Error(reference);
    for (const instructionSet of instructionSets) {
      for (const { threads, atOnce, kvCacheBytes } of variantsOf(instructionSet, plan.requests)) {
        const options = { threads, instructionSet, ...(kvCacheBytes === undefined ? {} : { kvCacheBytes }) };
        const seen = await observe(options, atOnce, plan, folder, reference);
        if (typeof seen === 'string') {
          figures.skipped.push(`${instructionSet} (${seen})`);
          break;
        }
        figures.variants += 1;
        figures.compared += seen.compared;
        figures.difference_max = Math.max(figures.difference_max, seen.difference);
        if (seen.state !== reference.state) figures.differing_states += 1;
      }
    }
    return figures;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The portable code is ten times slower, so it has a single variant; the other instruction sets have all variants. */
function variantsOf(
  instructionSet: (typeof instructionSets)[number],
  requests: number,
): { threads: number; atOnce: number; kvCacheBytes?: number }[] {
  const cores = availableParallelism();
  if (instructionSet === 'scalar') return [{ threads: cores, atOnce: requests }];
  return [
    { threads: 1, atOnce: requests },
    { threads: cores, atOnce: 1 },
    { threads: cores, atOnce: 7 },
    { threads: cores, atOnce: requests },
    { threads: 2 * cores + 1, atOnce: requests },
    // The cache is so small that prefixes are computed again and requests are interrupted for others.
    { threads: cores, atOnce: requests, kvCacheBytes: 0 },
  ];
}

interface Observation {
  generated: GenerateResult[];
  difference: number;
  compared: number;
  /** The state after one update on all generated tokens. */
  state: Digest;
}

/** Returns a string with the reason if the machine cannot run the variant. */
async function observe(
  options: Partial<NativeEngineOptions>,
  atOnce: number,
  { model, requests, newTokens }: LogprobPlan,
  folder: string,
  reference: Observation | null,
): Promise<Observation | string> {
  const engine = createNativeEngine({ binary: findEngine(), ...options });
  try {
    const info = await engine.info().catch((error: Error) => error.message);
    if (typeof info === 'string') return info;
    if (info.instructionSet !== options.instructionSet)
      return `the engine took ${info.instructionSet} instead`;
    const { state } = await engine.loadRandom(model);
    const generated = await inWaves(requests, atOnce, (slot) =>
      engine.generate({
        ...{ state, temperature, max_new_tokens: newTokens, stop_tokens: [], tokens: promptOf(slot >> 2) },
        key: { seed: 1, domain: 'train', step: 1, slot: slot >> 2, sample: slot & 3 },
      }),
    );
    const wanted = reference?.generated ?? generated;
    const differences = generated.map((one, slot) => differenceOf(one, wanted[slot]));
    const scored = await inWaves(requests, atOnce, async (slot) => {
      const tokens = wanted[slot]?.tokens ?? [];
      const prompt = promptOf(slot >> 2);
      const scores = await engine.score({ state, temperature, tokens: [...prompt, ...tokens] });
      return differenceOf(
        { tokens, logprobs: scores.slice(prompt.length - 1), finish: 'length' },
        wanted[slot],
      );
    });
    const { state: next, metrics } = await trainOn(engine, state, wanted, folder);
    const trained = metrics['max_logprob_difference'];
    if (trained === undefined) throw new Error('the engine reports no max_logprob_difference');
    return {
      generated,
      difference: Math.max(...differences, ...scored, trained),
      compared: generated.reduce((sum, { tokens }) => sum + 3 * tokens.length, 0),
      state: next,
    };
  } finally {
    await engine.close();
  }
}

function differenceOf(one: GenerateResult, other: GenerateResult | undefined): number {
  if (!other || one.logprobs.length !== other.logprobs.length) return otherTokens;
  if (one.tokens.some((token, i) => token !== other.tokens[i])) return otherTokens;
  return Math.max(...one.logprobs.map((logprob, i) => Math.abs(logprob - (other.logprobs[i] ?? Number.NaN))));
}

async function inWaves<T>(count: number, atOnce: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let start = 0; start < count; start += atOnce) {
    const wave = Array.from({ length: Math.min(atOnce, count - start) }, (_, i) => work(start + i));
    results.push(...(await Promise.all(wave)));
  }
  return results;
}
