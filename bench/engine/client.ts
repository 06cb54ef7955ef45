// Measures the engine's speed as a Node client sees it, on the quickstart's model and with episodes of the quickstart's shape.
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createNativeEngine, type NativeEngine } from '../../src/engine/native/native-engine.js';
import type { Digest } from '../../src/spec/records/parts.js';
import { findEngineBinary } from '../../src/workers/process/built-tool.js';
import { median } from '../figures/figure.js';
import { promptLengths, promptOf, quickstartModel, tokensOf } from './quickstart-model.js';
import { trainOn } from './train-on.js';

export interface EngineFigures {
  start_ms: number;
  round_trip_us: number;
  one_token_us: number;
  /** With 256 episodes at once. */
  generated_tokens_per_second: number;
  requests_per_second: number;
  client_cpu_us_per_request: number;
  /** CPU time of the engine process; 0 if the system does not report it. */
  engine_cpu_us_per_token: number;
  /** Tokens of the batch. A shared prefix counts once. */
  trained_tokens_per_second: number;
}

const episodes = 256;

export async function measureEngine(seconds = 4): Promise<EngineFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-engine-'));
  const start = performance.now();
  const engine = createNativeEngine({ binary: findEngineBinary() });
  try {
    await engine.info();
    const startMs = performance.now() - start;
    const { state } = await engine.loadRandom(await quickstartModel());
    const roundTripMs = await medianOf(2_000, () => engine.held());
    const prompt = tokensOf(3, 0, promptLengths.tools + promptLengths.task);
    const oneTokenMs = await medianOf(500, (sample) =>
      engine.generate({
        ...{ state, tokens: prompt, temperature: 1, max_new_tokens: 1, stop_tokens: [] },
        key: { seed: 1, domain: 'eval', step: 0, slot: 0, sample },
      }),
    );
    return {
      start_ms: startMs,
      round_trip_us: roundTripMs * 1_000,
      one_token_us: oneTokenMs * 1_000,
      ...(await measureGeneration(engine, state, seconds)),
      trained_tokens_per_second: await measureTraining(engine, state, seconds, folder),
    };
  } finally {
    await engine.close();
    await rm(folder, { recursive: true, force: true });
  }
}

async function measureGeneration(
  engine: NativeEngine,
  state: Digest,
  seconds: number,
): Promise<
  Pick<
    EngineFigures,
    | 'generated_tokens_per_second'
    | 'requests_per_second'
    | 'client_cpu_us_per_request'
    | 'engine_cpu_us_per_token'
  >
> {
  await collect(engine, state, 0);
  const cpuBefore = process.cpuUsage();
  const engineCpuBefore = cpuOf(engine.pid());
  const begun = performance.now();
  let [sampled, requests] = [0, 0];
  for (let step = 1; performance.now() - begun < seconds * 1_000; step += 1) {
    const totals = await collect(engine, state, step);
    sampled += totals.sampled;
    requests += totals.requests;
  }
  const elapsed = (performance.now() - begun) / 1_000;
  const cpu = process.cpuUsage(cpuBefore);
  return {
    generated_tokens_per_second: sampled / elapsed,
    requests_per_second: requests / elapsed,
    client_cpu_us_per_request: (cpu.user + cpu.system) / requests,
    engine_cpu_us_per_token: (cpuOf(engine.pid()) - engineCpuBefore) / sampled,
  };
}

/** 32 groups of 8 two-turn episodes, all at once: a prompt of 105 + 21 tokens, turns of at most 18 tokens, an answer of 24 tokens. */
async function collect(
  engine: NativeEngine,
  state: Digest,
  step: number,
): Promise<{ sampled: number; requests: number }> {
  const totals = { sampled: 0, requests: 0 };
  const episode = async (slot: number, sample: number): Promise<void> => {
    const transcript = promptOf(slot, step);
    for (let turn = 0; turn < 2; turn += 1) {
      const { tokens } = await engine.generate({
        ...{ state, tokens: transcript, temperature: 1, max_new_tokens: 18, stop_tokens: [] },
        key: { seed: 1, domain: 'train', step, slot, sample },
      });
      transcript.push(...tokens, ...tokensOf(2, slot * 8 + sample, promptLengths.answer));
      totals.sampled += tokens.length;
      totals.requests += 1;
    }
  };
  await Promise.all(Array.from({ length: episodes }, (_, i) => episode(i >> 3, i & 7)));
  return totals;
}

/** Updates on 256 transcripts of the same shape. The first update is not counted. */
async function measureTraining(
  engine: NativeEngine,
  first: Digest,
  seconds: number,
  folder: string,
): Promise<number> {
  const generated = await Promise.all(
    Array.from({ length: episodes }, (_, i) =>
      engine.generate({
        ...{ state: first, tokens: promptOf(i >> 2), temperature: 1, max_new_tokens: 60, stop_tokens: [] },
        key: { seed: 1, domain: 'train', step: 1, slot: i >> 2, sample: i & 3 },
      }),
    ),
  );
  let { state } = await trainOn(engine, first, generated, folder);
  let [tokens, milliseconds] = [0, 0];
  while (milliseconds < seconds * 1_000) {
    const result = await trainOn(engine, state, generated, folder);
    state = result.state;
    tokens += result.tokens;
    milliseconds += result.milliseconds;
  }
  return (1_000 * tokens) / milliseconds;
}

async function medianOf(times: number, call: (index: number) => Promise<unknown>): Promise<number> {
  const samples: number[] = [];
  for (let i = 0; i < times; i += 1) {
    const sent = performance.now();
    await call(i);
    samples.push(performance.now() - sent);
  }
  return median(samples);
}

/** CPU time that a process has used so far, in µs. Linux counts it in ticks of 10 ms. */
function cpuOf(pid: number | null): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return (Number(fields[11]) + Number(fields[12])) * 10_000;
  } catch {
    return 0;
  }
}
