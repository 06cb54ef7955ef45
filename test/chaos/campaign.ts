// `--runs N --seed S`: the runs of seeds S, S+1, …, each under its own schedule of faults, against one run that nobody disturbs.
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildLibcShim } from '../support/libc-shim.js';
import { findVersitygw } from '../support/find-tools.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { StackScripts } from '../../src/workers/stack.js';
import { disturb, type Disturbance } from './disturb.js';
import type { Fault, Need } from './faults/fault.js';
import { scheduleOf } from './schedule.js';
import { faultySurroundings, type FaultySurroundings, type StoreKind } from './surroundings.js';
import { runTrial, type TrialResult } from './trial.js';
import { problemsOf } from './verdict.js';

export interface CampaignOptions {
  /** Long enough that every fault meets an open run. */
  spec: RunSpec;
  seeds: readonly number[];
  faults: readonly Fault[];
  strikes: number;
  longestOutageMs: number;
  keep: boolean;
  scripts?: StackScripts;
  /** Command that repeats the run of a seed. */
  repeat(seed: number): string;
  log(message: string): void;
}

export interface CampaignRun {
  seed: number;
  disturbances: Disturbance[];
  problems: string[];
}

export interface Campaign {
  finalState: string | null;
  runs: CampaignRun[];
  /** Faults that this machine does not allow, with the reason. */
  leftOut: { fault: string; why: string }[];
}

/** A run that fails is a problem of its seed, and the next one follows; an undisturbed run that fails ends it. */
export async function runCampaign(options: CampaignOptions): Promise<Campaign> {
  const { spec, log } = options;
  const missing = await missingHere();
  const [faults, leftOut] = allowed(options.faults, missing);
  for (const { fault, why } of leftOut) log(`left out: ${fault} (${why})`);
  const stores: StoreKind[] = missing.has('s3') ? ['directory'] : ['directory', 's3'];
  const noShim = missing.get('shim') ?? null;
  const shared = { keep: options.keep, log, ...(options.scripts ? { scripts: options.scripts } : {}) };

  log('undisturbed run');
  const calm = await runTrial({
    ...shared,
    spec,
    surround: (folder, own) => faultySurroundings(folder, own, { store: 'directory', noShim }),
  });
  log(`  ${summary(calm)}`);
  const runs: CampaignRun[] = [];
  for (const seed of options.seeds) {
    const schedule = scheduleOf({
      ...{ seed, faults, stores, strikes: options.strikes, longestOutageMs: options.longestOutageMs },
      steps: calm.chain.steps - 1,
      // Within the step that was drawn.
      longestDelayMs: Math.max(200, (500 * calm.seconds) / calm.chain.steps),
    });
    log(`seed ${seed}, store: ${schedule.store}`);
    let around: FaultySurroundings | null = null;
    const outcome = await runTrial<Disturbance>({
      deadlineMs: 10 * 60_000 + options.strikes * options.longestOutageMs,
      ...shared,
      spec,
      surround: async (folder, own) =>
        (around = await faultySurroundings(folder, own, { store: schedule.store, noShim })),
      disturb: (trial) => {
        if (around === null) throw new Error('the surroundings come first');
        return disturb(trial, around.parts, schedule, log);
      },
    }).catch((error: unknown) => error as Error);
    const problems =
      outcome instanceof Error ? [outcome.message] : problemsOf(calm, outcome, options.strikes, 'faults');
    if (!(outcome instanceof Error)) log(`  ${summary(outcome)}`);
    for (const problem of problems) log(`  PROBLEM ${problem}`);
    if (problems.length > 0) log(`  again: ${options.repeat(seed)}`);
    runs.push({ seed, problems, disturbances: outcome instanceof Error ? [] : outcome.disturbances });
  }
  return { finalState: calm.chain.finalState, runs, leftOut };
}

const summary = ({ chain, seconds }: TrialResult<unknown>): string =>
  `${chain.steps - 1} steps in ${seconds.toFixed(1)} s, final state ${chain.finalState}`;

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

function allowed(
  faults: readonly Fault[],
  missing: ReadonlyMap<Need, string>,
): [Fault[], Campaign['leftOut']] {
  const leftOut: Campaign['leftOut'] = [];
  const kept = faults.filter(({ name, needs }) => {
    const need = needs.find((one) => missing.has(one));
    if (need !== undefined) leftOut.push({ fault: name, why: missing.get(need) ?? '' });
    return need === undefined;
  });
  return [kept, leftOut];
}
