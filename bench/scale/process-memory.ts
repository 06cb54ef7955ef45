// Resident memory of processes over a run's steps, from /proc. It includes native code and isolates.
import { readFileSync } from 'node:fs';
import type { Stack } from '../../src/stack/stack.js';
import { median } from '../figures/figure.js';

const pageBytes = 4096;

/** Samples of resident memory by process name. A process that was started again keeps its name. */
export class MemorySamples {
  private readonly samples = new Map<string, { step: number; bytes: number }[]>();

  take(step: number, processes: Record<string, number | null>): void {
    for (const [name, pid] of Object.entries(processes)) {
      const bytes = pid === null ? null : residentBytes(pid);
      if (bytes === null) continue;
      const samples = this.samples.get(name) ?? [];
      this.samples.set(name, samples);
      samples.push({ step, bytes });
    }
  }

  /** Median over the samples of steps `first` to `last`, both included. Throws if there are none. */
  medianBytes(name: string, first: number, last: number): number {
    const within = (this.samples.get(name) ?? []).filter(({ step }) => step >= first && step <= last);
    if (within.length === 0) throw new Error(`no memory of ${name} was sampled in steps ${first} to ${last}`);
    return median(within.map(({ bytes }) => bytes));
  }
}

/** Null once the process is gone. */
function residentBytes(pid: number): number | null {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * pageBytes;
  } catch {
    return null;
  }
}

/** Pids of a stack's processes whose memory is watched. The engine is a child of the node worker. */
export function pidsOf({ processes }: Stack): Record<'orchestrator' | 'node' | 'engine', number | null> {
  const pidOf = (name: string): number | null => processes.find((one) => one.name === name)?.pid ?? null;
  const node = pidOf('node');
  return { orchestrator: pidOf('orchestrator'), node, engine: childOf(node, 'longhaul-engine') };
}

function childOf(pid: number | null, part: string): number | null {
  if (pid === null) return null;
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ');
    const found = children.find((child) => readFileSync(`/proc/${child}/cmdline`, 'utf8').includes(part));
    return found === undefined ? null : Number(found);
  } catch {
    return null;
  }
}
