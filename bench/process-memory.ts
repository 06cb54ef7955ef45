// What processes use, from /proc: resident memory over a run's steps, native code and isolates included, and CPU time.
import { readFileSync } from 'node:fs';
import { median } from './figure.js';

const pageBytes = 4096;

/** `names` → pids, asked anew for each sample: a process that was started again counts on under its name. */
export class MemorySamples {
  readonly #samples = new Map<string, { step: number; bytes: number }[]>();

  take(step: number, processes: Record<string, number | null>): void {
    for (const [name, pid] of Object.entries(processes)) {
      const bytes = pid === null ? null : residentBytes(pid);
      if (bytes === null) continue;
      const samples = this.#samples.get(name) ?? [];
      this.#samples.set(name, samples);
      samples.push({ step, bytes });
    }
  }

  /** The newest sample of each process, in MiB. */
  newest(): string {
    return [...this.#samples]
      .map(([name, samples]) => `${name} ${toMib(samples.at(-1)?.bytes ?? 0)}`)
      .join(', ');
  }

  /** Median over the samples of steps `first` to `last`, both included. Throws where there are none. */
  medianBytes(name: string, first: number, last: number): number {
    const within = (this.#samples.get(name) ?? []).filter(({ step }) => step >= first && step <= last);
    if (within.length === 0) throw new Error(`no memory of ${name} was sampled in steps ${first} to ${last}`);
    return median(within.map(({ bytes }) => bytes));
  }
}

export function toMib(bytes: number): number {
  return Math.round((10 * bytes) / 2 ** 20) / 10;
}

/** Null where the process is gone. */
function residentBytes(pid: number): number | null {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * pageBytes;
  } catch {
    return null;
  }
}

/** The child of a process whose command line holds `part`: a node worker's engine. */
export function childOf(pid: number | null, part: string): number | null {
  if (pid === null) return null;
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ');
    const found = children.find((child) => readFileSync(`/proc/${child}/cmdline`, 'utf8').includes(part));
    return found === undefined ? null : Number(found);
  } catch {
    return null;
  }
}

/** CPU time of a process so far, in ms; Linux counts it in ticks of 10 ms. 0 where the process is gone. */
export function cpuMs(pid: number | null): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return (Number(fields[11]) + Number(fields[12])) * 10;
  } catch {
    return 0;
  }
}
