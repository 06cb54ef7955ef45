// Carries out a schedule on an open run, one fault at a time: start the fault, wait, undo it, and wait for the recovery.
import { setTimeout as delay } from 'node:timers/promises';
import type { World } from './faults/fault.js';
import { seededRandom } from './random.js';
import type { Schedule, Strike } from './schedule.js';
import type { FaultyParts } from './surroundings.js';
import type { OpenTrial } from './trial.js';

/** A shorter outage would have no effect. */
const shortestOutageMs = 300;

export interface Disturbance {
  fault: string;
  atMs: number;
  lastsMs: number;
  /** Last committed step when the fault started. */
  step: number;
  /** Time from the fault's end to the next commit, or to the run's end. */
  recoveredAfterMs: number;
}

/** Each look at the run's position reads several records, which keeps an S3 server and its client busy for milliseconds. */
const lookEachMs = 100;

/** `stepSeconds`: duration of a step in the undisturbed run. A slow machine gets more time to recover than the fault itself allows. */
export async function disturb(
  trial: OpenTrial,
  parts: FaultyParts,
  { strikes }: Schedule,
  log: (message: string) => void,
  stepSeconds = 0,
): Promise<Disturbance[]> {
  const disturbances: Disturbance[] = [];
  const started = performance.now();
  for (const strike of strikes) {
    while (!trial.over && (await trial.step()) < strike.afterStep) await delay(lookEachMs);
    await delay(strike.delayMs);
    if (trial.over) break;
    const world: World = { ...parts, trial, random: seededRandom(strike.seed) };
    const atMs = Math.round(performance.now() - started);
    const step = await trial.step();
    log(`  ${seconds(atMs).padStart(6)} s  ${strike.fault.name} in step ${step + 1}${lasting(strike)}`);
    const undo = await strike.fault.strike(world);
    if (undo === null) break;
    try {
      await outage(trial, strike);
    } finally {
      await undo();
    }
    const recoveredAfterMs = await recovered(
      trial,
      strike,
      Math.max(strike.fault.recoversWithinS, 20 * stepSeconds),
    );
    log(`           recovered after ${seconds(recoveredAfterMs)} s`);
    disturbances.push({ fault: strike.fault.name, atMs, lastsMs: strike.lastsMs, step, recoveredAfterMs });
  }
  return disturbances;
}

async function outage(trial: OpenTrial, { lastsMs, untilStep }: Strike): Promise<void> {
  const begun = performance.now();
  for (;;) {
    const elapsed = performance.now() - begun;
    if (trial.over || elapsed >= lastsMs) return;
    if (elapsed >= shortestOutageMs && (await trial.step()) >= untilStep) return;
    await delay(Math.min(lookEachMs, lastsMs - elapsed));
  }
}

/** Throws if the run has neither committed a step nor ended within this many seconds. */
async function recovered(trial: OpenTrial, { fault }: Strike, withinS: number): Promise<number> {
  const begun = performance.now();
  const before = await trial.step();
  while (!trial.over && (await trial.step()) <= before) {
    if (performance.now() - begun > withinS * 1000) {
      throw new Error(
        `${fault.name}: no step was committed within ${withinS} s of its end; the run stands after step ${before}`,
      );
    }
    await delay(lookEachMs);
  }
  return Math.round(performance.now() - begun);
}

const seconds = (ms: number): string => (ms / 1000).toFixed(1);
const lasting = ({ lastsMs }: Strike): string => (lastsMs > 0 ? ` for ${seconds(lastsMs)} s` : '');
