// How each part is measured. Long parts are measured by `--full` alone; the others each time.
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readSpecFile } from '../src/spec/spec-input.js';
import type { OpenedStore } from '../src/store/evaluations/folded-evaluations.js';
import { openStore } from '../src/store/open-store.js';
import { chaosKills } from './durability-figures.js';
import { eachVictimOnce, measureDisturbedRun, stepsOf } from './disturbed-run.js';
import { measureEngine } from './engine-client.js';
import { measureLoad } from './engine-load.js';
import { measureExactness, measureMemory, measureParity } from './engine-tests.js';
import { measureEnvironment, startEnvironmentServer } from './environment.js';
import { replayWithFaults } from './false-zeros.js';
import type { Measured, PartValues } from './figure.js';
import { measureFollowers } from './followers.js';
import { quickstartSeeds } from './figures.js';
import { firstExecution, historyOfStoppedStack } from './history.js';
import { intervalCoverage } from './interval-coverage.js';
import { measureLogprobs } from './logprobs.js';
import { measureLongRun } from './long-run.js';
import { measureManyRuns } from './many-runs.js';
import { measureNodeLoss } from './node-loss.js';
import {
  measureBuild,
  measureFuzzing,
  measureGemm,
  measureGeneration,
  measureSharing,
  measureTraining,
  modelSizes,
} from './native-engine.js';
import { quickstartModel } from './quickstart-model.js';
import { outputOf, type QuickstartRun, runCommand, runQuickstart } from './quickstart.js';
import { measureReport } from './report.js';
import { repository } from './repository.js';
import { measureReplay, measureRestore } from './restore.js';
import { recordFigures } from './run-records.js';
import { measureStore } from './store.js';
import { measureSweep } from './sweep.js';

export interface Part {
  name: string;
  measurement: string;
  long: boolean;
  /** Null where another command measures it: its last result is shown. */
  measure: ((session: BenchSession) => Promise<Measured>) | null;
}

const chaosDeadlineMs = 25 * 60_000;
const longRunDeadlineMs = 90 * 60_000;
const testsDeadlineMs = 40 * 60_000;

/** What parts share: one quickstart a seed, made when the first of them asks for it. */
export class BenchSession {
  readonly #runs = new Map<number, Promise<QuickstartRun>>();

  quickstart(seed: number): Promise<QuickstartRun> {
    const running = this.#runs.get(seed) ?? runQuickstart(seed);
    this.#runs.set(seed, running);
    return running;
  }

  async forget(seed: number): Promise<void> {
    const run = await this.#runs.get(seed)?.catch(() => null);
    this.#runs.delete(seed);
    if (run) await rm(run.folder, { recursive: true, force: true });
  }

  async close(): Promise<void> {
    await Promise.all([...this.#runs.keys()].map((seed) => this.forget(seed)));
  }
}

/** Of which the records, the history and the faulty evaluation are read. */
const mainSeed = 1;

export const parts: readonly Part[] = [
  { name: 'quickstart/run', measurement: 'quickstart', long: false, measure: measureRun },
  ...quickstartSeeds.map((seed): Part => ({
    name: `quickstart/seed-${seed}`,
    measurement: 'quickstart',
    long: true,
    measure: async (session) => {
      const values = passValues(await session.quickstart(seed));
      if (seed !== mainSeed) await session.forget(seed);
      return { values };
    },
  })),
  { name: 'false_zeros', measurement: 'false_zeros', long: false, measure: measureFalseZeros },
  {
    name: 'environment',
    measurement: 'environment',
    long: false,
    measure: async () => ({ values: { requests_per_second: await measureEnvironment() } }),
  },
  {
    name: 'logprobs',
    measurement: 'logprobs',
    long: false,
    measure: async () => {
      const plan = { model: await quickstartModel(), requests: 24, newTokens: 32 };
      const { skipped, ...values } = await measureLogprobs(plan);
      return { values, notes: skipped.map((what) => `skipped on this machine: ${what}`) };
    },
  },
  {
    name: 'engine',
    measurement: 'engine',
    long: false,
    measure: async () => ({ values: { ...(await measureEngine()) } }),
  },
  ...modelSizes.map((size): Part => ({
    name: `engine/train-${size}`,
    measurement: 'engine',
    long: true,
    measure: () => measureTraining(size),
  })),
  ...modelSizes.map((size): Part => ({
    name: `engine/generate-${size}`,
    measurement: 'engine',
    long: true,
    measure: () => measureGeneration(size),
  })),
  { name: 'engine/sharing', measurement: 'engine', long: true, measure: measureSharing },
  { name: 'engine/gemm', measurement: 'engine', long: true, measure: measureGemm },
  { name: 'engine/parity', measurement: 'engine', long: true, measure: measureParity },
  { name: 'engine/exactness', measurement: 'engine', long: true, measure: measureExactness },
  { name: 'engine/memory', measurement: 'engine', long: true, measure: measureMemory },
  { name: 'engine/load', measurement: 'engine', long: true, measure: measureLoad },
  { name: 'engine/build', measurement: 'engine', long: true, measure: measureBuild },
  { name: 'engine/fuzz', measurement: 'engine', long: true, measure: measureFuzzing },
  {
    name: 'store',
    measurement: 'store',
    long: false,
    measure: async () => ({ values: { puts_per_second: await measureStore() } }),
  },
  ...chaosKills.map((kills): Part => ({
    name: `chaos/${kills}`,
    measurement: 'chaos',
    long: true,
    measure: () => measureChaos(kills),
  })),
  // Hours: `npm run chaos -- --full --runs 100 --record`, in batches.
  { name: 'campaign', measurement: 'campaign', long: true, measure: null },
  { name: 'long_run', measurement: 'long_run', long: true, measure: measureLong },
  {
    name: 'many_runs',
    measurement: 'many_runs',
    long: true,
    measure: async () => {
      const scripts = { node: join(repository, 'dist/dev/bench/instant-node.js') };
      const plan = { runs: 20, steps: 40, workMs: 2_000, deadlineMs: 10 * 60_000, scripts };
      const note = 'on a node that answers at once: it takes 2 s for a step, and computes nothing';
      return { values: { ...(await measureManyRuns(plan)) }, notes: [note] };
    },
  },
  { name: 'disturbed', measurement: 'durability', long: true, measure: measureDisturbed },
  { name: 'node_loss', measurement: 'durability', long: true, measure: measureLoss },
  {
    name: 'restore',
    measurement: 'restore',
    long: false,
    measure: async () => ({ values: { ...(await measureRestore()) } }),
  },
  { name: 'replay', measurement: 'restore', long: false, measure: measureReplayed },
  { name: 'operate/report', measurement: 'operate', long: false, measure: () => measureReport() },
  { name: 'operate/sweep', measurement: 'operate', long: true, measure: measureOperatedSweep },
  {
    name: 'operate/intervals',
    measurement: 'operate',
    long: false,
    measure: () => Promise.resolve({ values: { coverage: coverageOfIntervals() } }),
  },
  { name: 'operate/followers', measurement: 'operate', long: false, measure: measureFollowed },
  { name: 'tests', measurement: 'tests', long: true, measure: measureTests },
];

function passValues({ result }: QuickstartRun): PartValues {
  const { before, after } = result.heldOutPassAt1;
  if (before === null || after === null)
    throw new Error(`${result.run} ended without its two final evaluations`);
  return { seconds: result.seconds, before, after };
}

async function measureRun(session: BenchSession): Promise<Measured> {
  const quickstart = await session.quickstart(mainSeed);
  const { folder, result } = quickstart;
  const store = await openStore(`dir:${join(folder, 'store')}`);
  const records = await recordFigures(store, result.run);
  if (records.compared_steps === 0) throw new Error(`no step of ${result.run} compared log-probs`);
  const history = await historyOfStoppedStack(
    folder,
    `train/${result.run}`,
    firstExecution(folder, result.run),
  );
  if (history.steps !== records.steps) {
    throw new Error(`the history plans ${history.steps} steps, the records hold ${records.steps}`);
  }
  return {
    values: {
      ...passValues(quickstart),
      ...{ tokens: result.tokens, tokens_per_second: result.tokensPerSecond },
      ...records,
      ...history,
      ...(await sizeOf(store)),
    },
  };
}

async function sizeOf(store: OpenedStore): Promise<{ store_mb: number; store_files: number }> {
  let [bytes, files] = [0, 0];
  for await (const { size } of store.unfolded.list('')) {
    bytes += size;
    files += 1;
  }
  return { store_mb: bytes / 1e6, store_files: files };
}

async function measureFalseZeros(session: BenchSession): Promise<Measured> {
  const { folder, result } = await session.quickstart(mainSeed);
  const server = await startEnvironmentServer();
  try {
    const figures = await replayWithFaults({
      store: await openStore(`dir:${join(folder, 'store')}`),
      ...{ run: result.run, environments: server, faultRate: 0.2, scratch: join(folder, 'replayed') },
    });
    if (figures.passed_undisturbed === 0)
      throw new Error('no undisturbed episode passed: no zero could be false');
    return { values: { ...figures } };
  } finally {
    server.stop();
  }
}

async function measureChaos(kills: number): Promise<Measured> {
  const main = join(repository, 'dist/dev/test/chaos/main.js');
  const args = [main, '--kills', String(kills), '--seed', '1', '--json'];
  const begun = performance.now();
  const { code, output } = await runCommand(process.execPath, args, chaosDeadlineMs);
  const verdict = output.trim().split('\n').at(-1) ?? '';
  if (code !== 0 && !verdict.startsWith('NOT equal'))
    throw new Error(`chaos with ${kills} kills ended with ${code}: ${verdict}`);
  return {
    values: { equal: code === 0 ? 1 : 0, seconds: (performance.now() - begun) / 1_000 },
    notes: [verdict],
  };
}

async function measureLong(): Promise<Measured> {
  const values = await measureLongRun({
    steps: 10_000,
    early: [1_000, 2_000],
    late: [9_000, 10_000],
    deadlineMs: longRunDeadlineMs,
    log: (message) => process.stderr.write(`${message}\n`),
  });
  return { values: { ...values } };
}

/** The second GRPO step is the first that is counted. */
async function measureDisturbed(): Promise<Measured> {
  // More than the bar's ten: machines are not equally fast for long.
  const shape = await stepsOf(13, say);
  const values = await measureDisturbedRun(
    { ...{ steps: 51, struck: [6, 14, 27, 38, 45], seed: 1 }, victims: eachVictimOnce(1), shape },
    say,
  );
  return { values: { ...values } };
}

/** What a measurement has to say while it lasts. */
function say(message: string): void {
  process.stderr.write(`  ${message}\n`);
}

async function measureLoss(): Promise<Measured> {
  const tiny = await readSpecFile(join(repository, 'presets/tiny.yaml'));
  const spec = {
    ...tiny,
    name: 'node-loss',
    trainer: { ...tiny.trainer, max_training_steps: 20, ckpt_interval: 4 },
  };
  return { values: { ...(await measureNodeLoss(spec, 20, say)) } };
}

async function measureReplayed(session: BenchSession): Promise<Measured> {
  const { folder, result } = await session.quickstart(mainSeed);
  return {
    values: { ...(await measureReplay(await openStore(`dir:${join(folder, 'store')}`), result.run, 40)) },
  };
}

/** The quickstart's own steps, fewer of them, with a checkpoint of every other one. */
async function measureOperatedSweep(): Promise<Measured> {
  const quickstart = await readSpecFile(join(repository, 'presets/quickstart.yaml'));
  const spec = {
    ...quickstart,
    name: 'swept',
    trainer: {
      ...quickstart.trainer,
      ...{ max_training_steps: 40, ckpt_interval: 2, eval_interval: 1_000, target_pass_at_1: 0 },
    },
  };
  const values = await measureSweep({
    ...{ spec, checkpoints: 20, suite: { tasks: 100, samples: 4 }, deadlineMs: 30 * 60_000, log: say },
    killed: { tasks: 25, samples: 2, kills: 10, seed: 1 },
  });
  return { values: { ...values } };
}

function coverageOfIntervals(): number {
  const { covered, of } = intervalCoverage(1_000).get('all') ?? { covered: 0, of: 1 };
  return covered / of;
}

async function measureFollowed(): Promise<Measured> {
  const plan = { steps: 300, pairs: 3, kills: 20, deadlineMs: 15 * 60_000 };
  return { values: { ...(await measureFollowers(plan, say)) } };
}

async function measureTests(): Promise<Measured> {
  await outputOf(process.execPath, [join(repository, 'tools/setup.mjs'), '--tests'], testsDeadlineMs);
  const begun = performance.now();
  const { output } = await runCommand('bash', [join(repository, 'tools/test.sh')], testsDeadlineMs);
  const seconds = (performance.now() - begun) / 1_000;
  const counts = /^(\d+) passed, (\d+) failed$/m.exec(output.trim().split('\n').at(-1) ?? '');
  if (!counts) throw new Error(`the test command gave no verdict: ${output.slice(-400).trim()}`);
  if (counts[2] !== '0') say(output);
  return { values: { seconds, passed: Number(counts[1]), failed: Number(counts[2]) } };
}
