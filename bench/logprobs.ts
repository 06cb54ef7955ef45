// Log-probs of rollouts against those of the trainer and of `score`, over batch sizes, threads and instruction sets.
// The reference is the portable code on one thread, one request at a time; every other way must give the same bits.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createNativeEngine, type NativeEngineOptions } from '../src/engine/native/native-engine.js';
import type {
  GenerateResult,
  PolicyEngine,
  RandomModel,
  UpdateRequest,
} from '../src/engine/policy-engine.js';
import { packForest } from '../src/rl/packing.js';
import type { Digest } from '../src/spec/records/records.js';
import { encodeBatchFile } from '../src/store/files/batch-file.js';
import { sha256Hex } from '../src/base/sha256.js';
import { findEngineBinary } from '../src/workers/process/engine-binary.js';
import { promptOf } from './quickstart-model.js';

export interface LogprobFigures {
  /** Over all variants: generated, scored and trained log-probs against the reference's generated ones. */
  difference_max: number;
  /** States after one update that are not the reference's. */
  differing_states: number;
  compared: number;
  variants: number;
  skipped: string[];
}

export interface LogprobPlan {
  model: RandomModel;
  requests: number;
  newTokens: number;
}

const instructionSets = ['avx512', 'avx2', 'scalar'] as const;
const temperature = 1;
/** A sampled token that is another one has no log-prob to compare. */
const otherTokens = 1;

export async function measureLogprobs(plan: LogprobPlan): Promise<LogprobFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-logprobs-'));
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

/** The portable code is ten times slower: it takes part with its threads, the others with everything. */
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
    // So small a cache that prefixes are computed again and requests give way to one another.
    { threads: cores, atOnce: requests, kvCacheBytes: 0 },
  ];
}

interface Observation {
  generated: GenerateResult[];
  difference: number;
  compared: number;
  /** After one update of all that was generated. */
  state: Digest;
}

/** A string says why the machine cannot do it. */
async function observe(
  options: Partial<NativeEngineOptions>,
  atOnce: number,
  { model, requests, newTokens }: LogprobPlan,
  folder: string,
  reference: Observation | null,
): Promise<Observation | string> {
  const engine = createNativeEngine({ binary: findEngineBinary(), ...options });
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

/** One update on what was generated, four samples a group; its old log-probs are those of the rollouts. */
export async function trainOn(
  engine: PolicyEngine,
  state: Digest,
  generated: readonly GenerateResult[],
  folder: string,
): Promise<{ state: Digest; metrics: Record<string, number>; tokens: number; milliseconds: number }> {
  const slots = Array.from({ length: Math.ceil(generated.length / 4) }, (_, slot) => slot);
  const forest = packForest([
    slots.flatMap((slot) => {
      const prompt = promptOf(slot);
      return generated.slice(slot * 4, slot * 4 + 4).map(({ tokens, logprobs }, sample) => ({
        tokens: [...prompt, ...tokens],
        targets: tokens.map((_, index) => ({
          index: prompt.length + index,
          advantage: sample % 2 === 0 ? 1 : -1,
          oldLogprob: logprobs[index] ?? 0,
        })),
      }));
    }),
  ]);
  const bytes = encodeBatchFile(forest, {
    ...{ schema: 'longhaul.batch/2', run: 'bench', step: 1, plan: sha256Hex('plan'), previous_state: state },
    ...{ inputs: sha256Hex('inputs'), mini_batches: 1, loss_tokens: [forest.target_tokens.length] },
    ...{ outcomes: [], metrics: {} },
  });
  const batchSha256 = sha256Hex(bytes);
  const batchPath = join(folder, `${batchSha256}.safetensors`);
  await writeFile(batchPath, bytes);
  const request: UpdateRequest = {
    ...{ state, step_id: sha256Hex(`${state} ${batchSha256}`), batchPath, batchSha256, temperature },
    ...{ learning_rates: [2.5e-4], adam_betas: [0.9, 0.98], adam_eps: 1e-8, weight_decay: 0 },
    ...{ max_grad_norm: 1, reset_moments: false },
    loss: { kind: 'regular', reduction: 'token_mean', eps_clip_low: 0.2, eps_clip_high: 0.28 },
  };
  const begun = performance.now();
  const result = await engine.update(request);
  const milliseconds = performance.now() - begun;
  await rm(batchPath, { force: true });
  return { state: result.state, metrics: result.metrics, tokens: forest.tokens.length, milliseconds };
}
