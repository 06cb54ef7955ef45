// The processes of a stack that a chaos run disturbs, found again each time: a restarted one has another pid.
import { readFileSync, readdirSync, readlinkSync, realpathSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findEngine } from '../support/find-tools.js';
import type { OpenTrial } from './trial.js';

export const victimNames = ['engine', 'node', 'orchestrator', 'environments', 'temporal'] as const;
export type VictimName = (typeof victimNames)[number];
const engineName = basename(realpathSync(findEngine()));

/** Null while it is not running. Of several nodes it is the one that the run works on, and its engine. */
export function pidOf(trial: Pick<OpenTrial, 'stack' | 'node'>, victim: VictimName): number | null {
  const name = victim === 'node' ? trial.node : victim;
  if (victim !== 'engine') return trial.stack.processes.find((one) => one.name === name)?.pid ?? null;
  const node = pidOf(trial, 'node');
  return node === null ? null : (descendantsOf(node).find(isEngine) ?? null);
}

/** Id of the process that got the signal; null where the run ended before one could. */
export async function signalled(
  trial: OpenTrial,
  victim: VictimName,
  signal: NodeJS.Signals,
): Promise<number | null> {
  while (!trial.over) {
    const pid = pidOf(trial, victim);
    if (pid !== null && sent(pid, signal)) return pid;
    await delay(10);
  }
  return null;
}

/** False for a process that has ended by itself, as an engine does whose node was killed. */
export function sent(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** True while one of its threads is on a processor: an engine that computes what it was asked for. */
export function isBusy(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).some((task) => {
      const stat = readFileSync(`/proc/${pid}/task/${task}/stat`, 'utf8');
      return stat.slice(stat.lastIndexOf(')') + 2).startsWith('R');
    });
  } catch {
    return false;
  }
}

/** Also of what stands between a node worker and its engine. */
function descendantsOf(pid: number): number[] {
  return childrenOf(pid).flatMap((child) => [child, ...descendantsOf(child)]);
}

function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
    );
  } catch {
    return [];
  }
}

/** By what it executes: a wrapper has the engine in its command line too. */
function isEngine(pid: number): boolean {
  try {
    return basename(readlinkSync(`/proc/${pid}/exe`)) === engineName;
  } catch {
    return false;
  }
}
