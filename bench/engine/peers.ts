// Compares the native engine with PyTorch and transformers, in turns on the same machine, and with the machine's own limits.
import { join } from 'node:path';
import type { Measured } from '../figures/figure.js';
import { outputOf, repository, runCommand } from '../repository.js';

export const modelSizes = ['0.85M', '6M', '60M'] as const;
export type ModelSize = (typeof modelSizes)[number];

/**
 * Number of sequences, all of equal length. The large model gets fewer, so that a round of the slowest peer takes less than half a minute.
 */
const sequences: Record<ModelSize, number> = { '0.85M': 32, '6M': 32, '60M': 8 };
const sequenceLength = 128;
const ownBatch: Record<ModelSize, number> = { '0.85M': 256, '6M': 256, '60M': 64 };
/** These batch sizes include the peer's best: at the largest size the peer's speed falls or hardly grows. */
const peerBatches: Record<ModelSize, string> = {
  '0.85M': '64,256,1024',
  '6M': '64,256,1024',
  '60M': '32,64,128',
};
const threads = 2;
const compilers = 2;
const roundSeconds = 10;
const commandDeadlineMs = 20 * 60_000;

/** A line of output of longhaul-bench or of its peer. */
interface BenchLine {
  kind?: string;
  tokens_per_second?: number;
  best?: boolean;
  failed?: string;
  m?: number;
  outputs?: number;
  inputs?: number;
  gflops?: number;
  of_peak?: number;
  ratio?: number;
}

/** Trained tokens per second in whole updates: our engine, PyTorch in eager mode, PyTorch with torch.compile. */
export async function measureTraining(size: ModelSize): Promise<Measured> {
  const [own, python] = await programs();
  const shape = ['--size', size, '--sequences', String(sequences[size]), '--length', String(sequenceLength)];
  const common = [...shape, '--seconds', String(roundSeconds), '--threads', String(threads)];
  const ours: number[] = [];
  const notes: string[] = [];
  const peers: Record<'eager' | 'compile', number> = { eager: 0, compile: 0 };
  for (const mode of ['eager', 'compile'] as const) {
    ours.push(speed(await lines(own, ['train', ...common])));
    const answered = await lines(python, [peer, 'train', '--mode', mode, ...common], { mayFail: true });
    const failed = answered.at(-1)?.failed;
    if (failed !== undefined) notes.push(`torch ${mode} failed: ${failed}`);
    else peers[mode] = speed(answered);
  }
  ours.push(speed(await lines(own, ['train', ...common])));
  const best = Math.max(peers.eager, peers.compile);
  if (best === 0) throw new Error(notes.join('; '));
  const longhaul = middle(ours);
  return {
    values: { longhaul, torch_eager: peers.eager, torch_compile: peers.compile, ratio: longhaul / best },
    notes,
  };
}

/** Generated tokens per second: our engine at one batch size, and `generate` of transformers at its best of several batch sizes. */
export async function measureGeneration(size: ModelSize): Promise<Measured> {
  const [own, python] = await programs();
  const lengths = ['--size', size, '--prompt', '32', '--new', '96', '--threads', String(threads)];
  const timed = [...lengths, '--seconds', String(roundSeconds)];
  const mine = ['generate', ...timed, '--batch', String(ownBatch[size])];
  const before = speed(await lines(own, mine));
  const answered = await lines(python, [peer, 'generate', ...timed, '--batches', peerBatches[size]]);
  const transformers = speed(answered.filter((line) => line.best === true));
  const after = speed(await lines(own, mine));
  const longhaul = (before + after) / 2;
  return { values: { longhaul, transformers, ratio: longhaul / transformers } };
}

/** Time to train on eight samples of one prompt: with the prompt computed once, and with the prompt computed eight times. */
export async function measureSharing(): Promise<Measured> {
  const [own] = await programs();
  const answered = await lines(own, ['sharing', '--size', '6M', '--threads', String(threads)]);
  return { values: { ratio: number(answered.at(-1)?.ratio, 'ratio') } };
}

/** Matrix products of the measured models: their share of the machine's multiply-add peak, and our best rate over PyTorch's best rate. */
export async function measureGemm(): Promise<Measured> {
  const [own, python] = await programs();
  const timed = ['gemm', '--threads', String(threads)];
  const products = (answered: readonly BenchLine[]) => answered.filter(({ kind }) => kind !== 'peak');
  const ours = products(await lines(own, timed));
  const torch = products(await lines(python, [peer, ...timed]));
  const worst = (kind: string): number =>
    Math.min(...ours.filter((line) => line.kind === kind).map((line) => number(line.of_peak, 'of_peak')));
  const nameOf = ({ kind, m, outputs, inputs }: BenchLine) => [kind, m, outputs, inputs].join(' ');
  const rateOfTorch = new Map(torch.map((line) => [nameOf(line), line.gflops]));
  const overTorch = ours.map(
    (line) =>
      number(line.gflops, 'gflops') / number(rateOfTorch.get(nameOf(line)), `gflops of ${nameOf(line)}`),
  );
  return {
    values: {
      matmul_worst: worst('matmul'),
      weight_gradient_worst: worst('weight_gradient'),
      median: middle(ours.map((line) => number(line.of_peak, 'of_peak'))),
      over_torch: middle(overTorch),
    },
  };
}

const peer = join(repository, 'bench/engine/peers/peer.py');
const benchFolder = join(repository, '.longhaul/engine-bench');
let installed: Promise<[own: string, python: string]> | null = null;

/** Builds longhaul-bench and installs the peers. Resolves to the program and to the Python that has the peers. */
function programs(): Promise<[own: string, python: string]> {
  installed ??= (async () => {
    await build(benchFolder, 'longhaul-bench');
    const setup = await outputOf(
      'bash',
      [join(repository, 'bench/engine/peers/setup.sh')],
      commandDeadlineMs,
    );
    return [join(benchFolder, 'longhaul-bench'), setup.trim().split('\n').at(-1) ?? ''];
  })();
  return installed;
}

async function build(folder: string, target: string): Promise<void> {
  const places = ['-S', join(repository, 'native'), '-B', folder];
  const options = ['-DCMAKE_BUILD_TYPE=Release', '-DLONGHAUL_TESTS=ON'];
  await outputOf('cmake', [...places, ...options], commandDeadlineMs);
  const args = ['--build', folder, '--parallel', String(compilers), '--target', target];
  await outputOf('cmake', args, commandDeadlineMs);
}

async function lines(command: string, args: string[], { mayFail = false } = {}): Promise<BenchLine[]> {
  const { code, output } = await runCommand(command, args, commandDeadlineMs);
  if (code !== 0 && !mayFail)
    throw new Error(`${[command, ...args].join(' ')} ended with ${code}: ${output.slice(-400).trim()}`);
  const printed = output.split('\n').filter((line) => line.startsWith('{'));
  if (printed.length === 0)
    throw new Error(`${[command, ...args].join(' ')} printed nothing and ended with ${code}`);
  return printed.map((line) => JSON.parse(line) as BenchLine);
}

function speed(answered: readonly BenchLine[]): number {
  return number(answered.at(-1)?.tokens_per_second, 'tokens_per_second');
}

function number(value: number | undefined, name: string): number {
  if (value === undefined) throw new Error(`the benchmark printed no ${name}`);
  return value;
}

function middle(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
