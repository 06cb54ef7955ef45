// Kills processes with SIGKILL at random moments: `--kills N`.
import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from './random.js';
import type { OpenTrial } from './trial.js';
import { signalled, victimNames, type VictimName } from './victims.js';

export interface Kill {
  victim: VictimName;
  atMs: number;
  pid: number;
  /** Last step that was committed before the kill. */
  step: number;
}

export interface KillOptions {
  kills: number;
  random: Random;
  /** Maximum time between the commit of the drawn step and the kill. */
  longestDelayMs: number;
  log(message: string): void;
}

/**
 * Kills processes of an open run; a kill after the run's end is missing from the result. Moments are drawn by step, not by time: each lies
 * somewhere within a random step. So kills are spread over warm start, rollouts, updates and evaluations, however long a recovery takes.
 */
export async function killAtRandom(
  trial: OpenTrial,
  { kills: count, random, longestDelayMs, log }: KillOptions,
): Promise<Kill[]> {
  const moments = Array.from({ length: count }, () => ({
    afterStep: random.below(trial.steps) - 1,
    delayMs: random.next() * longestDelayMs,
    victim: random.pick(victimNames),
  })).sort((a, b) => a.afterStep - b.afterStep);
  const kills: Kill[] = [];
  const started = performance.now();
  for (const { afterStep, delayMs, victim } of moments) {
    while (!trial.over && (await trial.step()) < afterStep) await delay(50);
    await delay(delayMs);
    const pid = await signalled(trial, victim, 'SIGKILL');
    if (pid === null) break;
    const step = await trial.step();
    const atMs = Math.round(performance.now() - started);
    kills.push({ victim, atMs, pid, step });
    log(`  ${(atMs / 1000).toFixed(1).padStart(6)} s  killed ${victim} (${pid}) in step ${step + 1}`);
  }
  return kills;
}
