// What the engine costs a caller in Node, on the quickstart's model: JSON lines {name, value, unit}.
// Usage: node dist/dev/bench/engine-client.js [--seconds S]. LONGHAUL_ENGINE names the engine, else the last build.
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { createNativeEngine, type NativeEngine } from '../src/engine/native/native-engine.js';
import type { Digest } from '../src/spec/records.js';
import { findEngineBinary } from '../src/workers/engine-binary.js';

const { values } = parseArgs({ options: { seconds: { type: 'string', default: '4' } } });
const seconds = Number(values.seconds);

const vocabulary = 1024;
const quickstartModel = {
  architecture: {
    vocab_size: vocabulary,
    hidden_size: 128,
    intermediate_size: 384,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 32,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    max_position_embeddings: 512,
  },
  initializer_range: 0.04,
  seed: 1,
};

function print(name: string, value: number, unit: string): void {
  console.log(JSON.stringify({ name, value: Number(value.toPrecision(4)), unit }));
}

function median(samples: number[]): number {
  return [...samples].sort((a, b) => a - b)[Math.floor(samples.length / 2)] ?? Number.NaN;
}

/** Tokens of an app's tool list, of a group's task, and of a tool's answer. */
function tokensOf(kind: number, index: number, length: number): number[] {
  return Array.from({ length }, (_, i) => (kind * 331 + index * 97 + i * 61 + ((i * i) % 29)) % vocabulary);
}

/** CPU time of a process so far, in µs; Linux counts it in ticks of 10 ms. */
function cpuOf(pid: number | null): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

interface Totals {
  sampled: number;
  requests: number;
}

/** 32 groups of 8 episodes of two turns, all at once: prompt 105 + 21 tokens, turns of ≤ 18 tokens, a 24-token answer. */
async function collect(engine: NativeEngine, state: Digest, step: number): Promise<Totals> {
  const totals = { sampled: 0, requests: 0 };
  const episode = async (slot: number, sample: number): Promise<void> => {
    const transcript = [...tokensOf(0, slot % 2, 105), ...tokensOf(1, slot + step * 32, 21)];
    for (let turn = 0; turn < 2; turn += 1) {
      const { tokens } = await engine.generate({
        state,
        tokens: transcript,
        key: { seed: 1, domain: 'train', step, slot, sample },
        temperature: 1,
        max_new_tokens: 18,
        stop_tokens: [],
      });
      transcript.push(...tokens, ...tokensOf(2, slot * 8 + sample, 24));
      totals.sampled += tokens.length;
      totals.requests += 1;
    }
  };
  await Promise.all(Array.from({ length: 256 }, (_, i) => episode(i >> 3, i & 7)));
  return totals;
}

const start = performance.now();
const engine = createNativeEngine({ binary: findEngineBinary() });
try {
  const info = await engine.info();
  print('engine.start', performance.now() - start, 'ms');
  const { state } = await engine.loadRandom(quickstartModel);

  const trips: number[] = [];
  for (let i = 0; i < 2_000; i += 1) {
    const sent = performance.now();
    await engine.held();
    trips.push(performance.now() - sent);
  }
  print('engine.round_trip', median(trips) * 1_000, 'us');

  const single: number[] = [];
  const prompt = tokensOf(3, 0, 126);
  for (let i = 0; i < 500; i += 1) {
    const sent = performance.now();
    await engine.generate({
      state,
      tokens: prompt,
      key: { seed: 1, domain: 'eval', step: 0, slot: 0, sample: i },
      temperature: 1,
      max_new_tokens: 1,
      stop_tokens: [],
    });
    single.push(performance.now() - sent);
  }
  print('engine.generate_one_token', median(single) * 1_000, 'us');

  await collect(engine, state, 0);
  const before = await engine.stats();
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
  const after = await engine.stats();
  const grown = (name: string): number => (after[name] ?? 0) - (before[name] ?? 0);
  print('engine.generate_256', sampled / elapsed, 'tokens/s');
  print('engine.generate_256.requests', requests / elapsed, 'requests/s');
  print('engine.client_cpu_per_request', (cpu.user + cpu.system) / requests, 'us');
  print('engine.cpu_per_sampled_token', (cpuOf(engine.pid()) - engineCpuBefore) / sampled, 'us');
  print('engine.prefilled_per_sampled', grown('prefilled_tokens') / sampled, 'tokens');
  print(
    'engine.rows_per_pass',
    (grown('prefilled_tokens') + grown('generated_tokens')) / grown('passes'),
    'rows',
  );
  print('engine.threads', info.threads, info.instructionSet);
} finally {
  await engine.close();
}
