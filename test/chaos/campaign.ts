// `--runs N --seed S`: one undisturbed run, then one run for each of the seeds S, S+1, … under its own schedule of faults. Each is compared
// with the undisturbed run.
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildLibcShim } from '../support/preloads/libc-shim.js';
import { findVersitygw } from '../support/find-tools.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { StackScripts } from '../../src/stack/process-plans.js';
import { disturb, type Disturbance } from './disturb.js';
import type { Fault, Need } from './faults/fault.js';
import { scheduleOf } from './schedule.js';
import { inPlaces } from './places.js';
import { faultySurroundings, type FaultySurroundings, type StoreKind } from './surroundings.js';
import { runTrial, type TrialResult } from './trial.js';
import { problemsOf } from './checks/verdict.js';

export interface CampaignOptions {
  /** The run must be so long that every fault happens while it is still open. */
  spec: RunSpec;
  faults: readonly Fault[];
  strikes: number;
  longestOutageMs: number;
  keep: boolean;
  /** Aborting it stops the current runs with an error, and no further run starts. */
  signal?: AbortSignal;
  scripts?: StackScripts;
  /** Command that repeats the run of a seed. */
  repeat(seed: number): string;
  log(message: string): void;
}

export interface CampaignRun {
  seed: number;
  disturbances: Disturbance[];
  problems: string[];
  seconds: number;
}

export interface CampaignSeeds {
  seeds: readonly number[];
  /**
   * Runs one seed. Default: `runSeed` in this process. Then only one run may go on at a time, because it sets environment variables of the
   * process. `onlyWaits` must be called when the run needs no processor any more.
   */
  run?(seed: number, calm: Calm, onlyWaits: () => void): Promise<CampaignRun>;
  /** How many runs may use the processors at the same time. More than one only if `run` uses a process for each. */
  atOnce?: number;
  /** If false, a fault that this machine does not support is an error. */
  leaveOut?: boolean;
  /** Called with each run when it has ended. */
  ended?(run: CampaignRun): void;
}

export interface Campaign {
  finalState: string | null;
  /** Sorted by seed. */
  runs: CampaignRun[];
  leftOut: LeftOut[];
}

/** A fault that this machine does not support, with the reason. */
export interface LeftOut {
  fault: string;
  why: string;
}

/** The result of the undisturbed run; can be written as JSON. */
export type Calm = Omit<TrialResult<unknown>, 'disturbances'>;

/** If a disturbed run fails, that is a problem of its seed, and the campaign continues. If the undisturbed run fails, the campaign ends. */
export async function runCampaign(options: CampaignOptions & CampaignSeeds): Promise<Campaign> {
  const { log, seeds, atOnce = 1, run = (seed, calm) => runSeed(options, calm, seed) } = options;
  const { leftOut } = await allowedHere(options.faults);
  for (const { fault, why } of leftOut) log(`left out: ${fault} (${why})`);
  if (options.leaveOut === false && leftOut.length > 0)
    throw new Error(
      `a campaign over all faults needs ${[...new Set(leftOut.map(({ why }) => why))].join(', ')}`,
    );
  const calm = await runUndisturbed(options);
  const runs: CampaignRun[] = [];
  const begin = async (seed: number, onlyWaits: () => void): Promise<void> => {
    const one = await run(seed, calm, onlyWaits);
    runs.push(one);
    options.ended?.(one);
  };
  await inPlaces(seeds, atOnce, begin, options.signal);
  runs.sort((a, b) => a.seed - b.seed);
  return { finalState: calm.chain.finalState, runs, leftOut };
}

async function runUndisturbed(options: CampaignOptions): Promise<Calm> {
  const { spec, log } = options;
  const { noShim } = await allowedHere(options.faults);
  log('undisturbed run');
  const calm = await runTrial({
    ...shared(options),
    spec,
    surround: (folder, own) =>
      faultySurroundings(folder, own, { store: 'directory', nodes: 1, noShim, scripts: options.scripts }),
  });
  log(`  ${summary(calm)}`);
  return calm;
}

/** Runs one seed under its own schedule of faults. */
export async function runSeed(
  options: CampaignOptions,
  calm: Calm,
  seed: number,
  onlyWaits: () => void = () => undefined,
): Promise<CampaignRun> {
  const { spec, log, strikes, longestOutageMs } = options;
  const { faults, stores, noShim } = await allowedHere(options.faults);
  const schedule = scheduleOf({
    ...{ seed, faults, stores, strikes, longestOutageMs },
    steps: calm.chain.steps - 1,
    // Keeps a fault within the step that was drawn for it.
    longestDelayMs: Math.max(200, (500 * calm.seconds) / calm.chain.steps),
  });
  log(`seed ${seed}, store: ${schedule.store}, nodes: ${schedule.nodes}`);
  let around: FaultySurroundings | null = null;
  const begun = performance.now();
  const outcome = await runTrial<Disturbance>({
    deadlineMs: 10 * 60_000 + strikes * longestOutageMs,
    ...shared(options),
    ...{ spec, onlyWaits },
    surround: async (folder, own) =>
      (around = await faultySurroundings(folder, own, {
        ...{ store: schedule.store, nodes: schedule.nodes, noShim },
        scripts: options.scripts,
      })),
    disturb: (trial) => {
      if (around === null) throw new Error('the surroundings come first');
      return disturb(trial, around.parts, schedule, log, calm.seconds / calm.chain.steps);
    },
  }).catch((error: unknown) => error as Error);
  const problems =
    outcome instanceof Error ? [outcome.message] : problemsOf(calm, outcome, strikes, 'faults');
  if (!(outcome instanceof Error)) log(`  ${summary(outcome)}`);
  for (const problem of problems) log(`  PROBLEM ${problem}`);
  if (problems.length > 0) log(`  again: ${options.repeat(seed)}`);
  const disturbances = outcome instanceof Error ? [] : outcome.disturbances;
  return { seed, problems, disturbances, seconds: (performance.now() - begun) / 1000 };
}

const shared = ({ keep, log, scripts, signal }: CampaignOptions) => ({
  ...{ keep, log },
  ...(scripts ? { scripts } : {}),
  ...(signal ? { signal } : {}),
});

const summary = ({ chain, seconds }: Calm): string =>
  `${chain.steps - 1} steps in ${seconds.toFixed(1)} s, final state ${chain.finalState}`;

let knownMissing: Promise<Map<Need, string>> | null = null;

/** The needs that this machine cannot meet, each with the reason. */
async function missingHere(): Promise<Map<Need, string>> {
  const missing = new Map<Need, string>();
  try {
    findVersitygw();
  } catch (error) {
    missing.set('s3', (error as Error).message);
  }
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'longhaul-shim-')));
  try {
    (await buildLibcShim(folder, { node: join(folder, 'node'), store: join(folder, 'store') })).close();
  } catch (error) {
    missing.set('shim', `no library can be preloaded here: ${(error as Error).message}`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return missing;
}

interface AllowedHere {
  faults: Fault[];
  leftOut: LeftOut[];
  stores: StoreKind[];
  /** Why no library can be preloaded here; null if it can. */
  noShim: string | null;
}

async function allowedHere(all: readonly Fault[]): Promise<AllowedHere> {
  const missing = await (knownMissing ??= missingHere());
  const leftOut: LeftOut[] = [];
  const faults = all.filter(({ name, needs }) => {
    const need = needs.find((one) => missing.has(one));
    if (need !== undefined) leftOut.push({ fault: name, why: missing.get(need) ?? '' });
    return need === undefined;
  });
  const stores: StoreKind[] = missing.has('s3') ? ['directory'] : ['directory', 's3'];
  return { faults, leftOut, stores, noShim: missing.get('shim') ?? null };
}
