// Every part that is measured separately. `--full` measures all parts; without it, long parts are left out.
import { join } from 'node:path';
import { openStore } from '../src/store/open-store.js';
import { chaosKills, measureChaos } from './durability/chaos.js';
import { measureData } from './data/data.js';
import { measureDurability } from './durability/disturbed-run.js';
import { measureEnvironments } from './environments/environments.js';
import { measureFleet } from './environments/fleet.js';
import { measureEngine } from './engine/client.js';
import { measureLoad } from './engine/load.js';
import {
  measureGemm,
  measureGeneration,
  measureSharing,
  measureTraining,
  modelSizes,
} from './engine/peers.js';
import type { Measured } from './figures/figure.js';
import {
  mainSeed,
  measureQuickstart,
  measureSeed,
  type QuickstartRuns,
  quickstartSeeds,
} from './quickstart/quickstart.js';
import { measureCurriculum } from './learning/curriculum.js';
import { measureReport } from './report/report.js';
import { repository } from './repository.js';
import { measureReplay, measureRestore } from './restore/restore.js';
import { measureLongRun } from './scale/long-run.js';
import { measureManyRuns } from './scale/many-runs.js';
import { measureChecks } from './served/checks.js';
import { measureServed } from './served/served.js';
import { measureSweepOfQuickstart } from './sweep/sweep.js';

export interface Part {
  name: string;
  long: boolean;
  /** Null if another command measures the part; its last result is shown. */
  measure: ((runs: QuickstartRuns) => Promise<Measured>) | null;
}

const short = (name: string, measure: Part['measure']): Part => ({
  ...{ name, measure, long: false },
});
const long = (name: string, measure: Part['measure']): Part => ({
  ...{ name, measure, long: true },
});
const withValues = async (values: Promise<object>): Promise<Measured> => ({
  values: { ...(await values) },
});

export const parts: readonly Part[] = [
  short('quickstart/run', measureQuickstart),
  ...quickstartSeeds.map((seed) => long(`quickstart/seed-${seed}`, (runs) => measureSeed(runs, seed))),
  short('engine', () => withValues(measureEngine())),
  ...modelSizes.map((size) => long(`engine/train-${size}`, () => measureTraining(size))),
  ...modelSizes.map((size) => long(`engine/generate-${size}`, () => measureGeneration(size))),
  long('engine/sharing', measureSharing),
  long('engine/gemm', measureGemm),
  long('engine/load', measureLoad),
  ...chaosKills.map((kills) => long(`chaos/${kills}`, () => measureChaos(kills))),
  // Takes hours, in batches: `npm run chaos -- --full --runs 20 --record`.
  long('campaign', null),
  long('disturbed', () => withValues(measureDurability())),
  long('served', () => withValues(measureServed())),
  long('served/checks', () => withValues(measureChecks())),
  short('environments', () => withValues(measureEnvironments())),
  short('fleet', () => withValues(measureFleet())),
  short('data', () => withValues(measureData())),
  short('curriculum', () => withValues(measureCurriculum())),
  short('restore', () => withValues(measureRestore())),
  short('replay', async (runs) => {
    const { folder, result } = await runs.of(mainSeed);
    return withValues(measureReplay(await openStore(`dir:${join(folder, 'store')}`), result.run, 40));
  }),
  long('long_run', () => {
    const windows = { early: [1_000, 2_000], late: [9_000, 10_000] } as const;
    return withValues(measureLongRun({ steps: 10_000, ...windows, deadlineMs: 90 * 60_000 }));
  }),
  long('many_runs', () => {
    const scripts = { node: join(repository, 'dist/dev/bench/scale/instant-node.js') };
    const plan = { runs: 20, steps: 40, workMs: 2_000, deadlineMs: 10 * 60_000, scripts };
    return withValues(measureManyRuns(plan));
  }),
  long('sweep', () => withValues(measureSweepOfQuickstart())),
  short('report', measureReport),
];
