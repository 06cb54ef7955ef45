// Runs the quickstart by the real command, in a folder of its own. The folder stays for other measurements that read it.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { QuickstartResult } from '../../src/cli/train/quickstart-command.js';
import type { OpenedStore } from '../../src/store/runs/episodes.js';
import { openStore } from '../../src/store/open-store.js';
import type { Measured, PartValues } from '../figures/figure.js';
import { outputOf, repository } from '../repository.js';
import { firstExecution, historyOfStoppedStack } from './history.js';
import { recordFigures } from './run-records.js';

export interface QuickstartRun {
  folder: string;
  result: QuickstartResult;
}

export const quickstartSeeds = [1, 2, 3, 4, 5] as const;
/** Seed of the run that other benchmarks use. */
export const mainSeed = 1;

const deadlineMs = 25 * 60_000;

/** Quickstart runs that several parts share. Each seed runs once, when a part first asks for it. */
export class QuickstartRuns {
  private readonly runs = new Map<number, Promise<QuickstartRun>>();

  of(seed: number): Promise<QuickstartRun> {
    const running = this.runs.get(seed) ?? runQuickstart(seed);
    this.runs.set(seed, running);
    return running;
  }

  async forget(seed: number): Promise<void> {
    const run = await this.runs.get(seed)?.catch(() => null);
    this.runs.delete(seed);
    if (run) await rm(run.folder, { recursive: true, force: true });
  }

  async close(): Promise<void> {
    await Promise.all([...this.runs.keys()].map((seed) => this.forget(seed)));
  }
}

async function runQuickstart(seed: number): Promise<QuickstartRun> {
  const folder = await mkdtemp(join(tmpdir(), `longhaul-bench-seed${seed}-`));
  const args = ['quickstart', '--json', '--seed', String(seed), '--folder', folder];
  const output = await outputOf(join(repository, 'bin/longhaul'), args, deadlineMs);
  const last = output.trim().split('\n').at(-1) ?? '';
  return { folder, result: JSON.parse(last) as QuickstartResult };
}

/** Measures the run of one seed by what the command prints. */
export async function measureSeed(runs: QuickstartRuns, seed: number): Promise<Measured> {
  const values = passValues(await runs.of(seed));
  if (seed !== mainSeed) await runs.forget(seed);
  return { values };
}

/** Measures the main seed's run, including its records, its history and its store. */
export async function measureQuickstart(runs: QuickstartRuns): Promise<Measured> {
  const quickstart = await runs.of(mainSeed);
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
    throw new Error(`the history plans ${history.steps} steps, but the records have ${records.steps}`);
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

function passValues({ result }: QuickstartRun): PartValues {
  const { before, after } = result.heldOutPassAt1;
  if (before === null || after === null)
    throw new Error(`${result.run} ended without its two final evaluations`);
  return { seconds: result.seconds, before, after };
}

/** Sums the sizes of the files in the store's folder, not the blocks that they take on disk. */
async function sizeOf(store: OpenedStore): Promise<{ store_mb: number; store_files: number }> {
  let [bytes, files] = [0, 0];
  for await (const { size } of store.unfolded.list('')) {
    bytes += size;
    files += 1;
  }
  return { store_mb: bytes / 1e6, store_files: files };
}
