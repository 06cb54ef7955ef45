// The processes of a stack that a chaos run disturbs. Each is looked up when it is needed, because a restarted process has a new pid.
import { readFileSync, readdirSync, readlinkSync, realpathSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findEngine } from '../support/find-tools.js';
import type { OpenTrial } from './trial.js';

export const victimNames = ['engine', 'node', 'orchestrator', 'environments', 'temporal'] as const;
export type VictimName = (typeof victimNames)[number];
const engineName = basename(realpathSync(findEngine()));

/** Null while it is not running. With several nodes, it is the node that the run works on, or that node's engine. */
export function pidOf(trial: Pick<OpenTrial, 'stack' | 'node'>, victim: VictimName): number | null {
  const name = victim === 'node' ? trial.node : victim;
  if (victim !== 'engine') return trial.stack.processes.find((one) => one.name === name)?.pid ?? null;
  const node = pidOf(trial, 'node');
  return node === null ? null : (descendantsOf(node).find(isEngine) ?? null);
}

/** Pid of the process that got the signal; null if the run ended before that. */
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

/** False if the process has already ended, like an engine whose node was killed. */
export function sent(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** True if one of the process's threads is running, which shows that an engine computes. */
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

/** All descendants, because a wrapper may run between a node worker and its engine. */
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

/** Compares the executable, because a wrapper has the engine's path in its command line, too. */
function isEngine(pid: number): boolean {
  try {
    return basename(readlinkSync(`/proc/${pid}/exe`)) === engineName;
  } catch {
    return false;
  }
}
