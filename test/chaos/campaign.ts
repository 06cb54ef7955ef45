// `--runs N --seed S`: the runs of seeds S, S+1, …, each under its own schedule of faults, against one run that nobody disturbs.
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
  /** Long enough that every fault meets an open run. */
  spec: RunSpec;
  faults: readonly Fault[];
  strikes: number;
  longestOutageMs: number;
  keep: boolean;
  /** Ends the runs that are under way, with an error, and begins no other. */
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
   * How a seed is run; by default here, with `runSeed`, alone to its end: what it sets in the environment is this process's.
   * `onlyWaits` is called when it needs no processor any more.
   */
  run?(seed: number, calm: Calm, onlyWaits: () => void): Promise<CampaignRun>;
  /**
   * Runs that go on at the same time, beside those that only wait; more than one only where `run` gives each a process of its own.
   */
  atOnce?: number;
  /** False: a fault that this machine does not allow is an error. */
  leaveOut?: boolean;
  /** Told of each run as it ends. */
  ended?(run: CampaignRun): void;
}

export interface Campaign {
  finalState: string | null;
  /** In order of their seeds. */
  runs: CampaignRun[];
  leftOut: LeftOut[];
}

/** A fault that this machine does not allow, with the reason. */
export interface LeftOut {
  fault: string;
  why: string;
}

/** What an undisturbed run became; JSON. */
export type Calm = Omit<TrialResult<unknown>, 'disturbances'>;

/** A run that fails is a problem of its seed, and the next one follows; an undisturbed run that fails ends it. */
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

/** The run of one seed under its own schedule. */
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
    // Within the step that was drawn.
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

/** What this machine lacks, with the reason. */
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
  /** Why nothing can be preloaded here, or null. */
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
