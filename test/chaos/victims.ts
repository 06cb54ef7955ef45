// The processes of a stack that a chaos run kills, found anew each time: a restarted one has another pid.
import { readFileSync, readdirSync } from 'node:fs';
import type { Stack } from '../../src/workers/stack.js';

export const victimNames = ['engine', 'node', 'orchestrator', 'environments', 'temporal'] as const;
export type VictimName = (typeof victimNames)[number];

/** Null while it is not running. */
export function pidOf(stack: Stack, victim: VictimName): number | null {
  if (victim !== 'engine') return stack.processes.find((one) => one.name === victim)?.pid ?? null;
  const node = pidOf(stack, 'node');
  return node === null
    ? null
    : (childrenOf(node).find((pid) => commandOf(pid).includes('longhaul-engine')) ?? null);
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

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}
