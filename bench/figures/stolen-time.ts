// Steal time: CPU time that this virtual machine wanted and its host gave to others. A measurement during steal time is too slow.
import { readFileSync } from 'node:fs';

/** In ticks, summed over all cores. */
interface CpuTime {
  wanted: number;
  stolen: number;
}

/** With fewer wanted ticks than this (5 s) the share means nothing. */
const fewestTicks = 500;

/**
 * Returns a function that gives the stolen share of the wanted time since this call, 0..1. The share is 0 if there is no `/proc/stat`.
 * `read` returns its text.
 */
export function countStolenTime(read = readProcStat): () => number {
  const first = cpuTime(read());
  return () => {
    const now = cpuTime(read());
    const wanted = now.wanted - first.wanted;
    return wanted < fewestTicks ? 0 : (now.stolen - first.stolen) / wanted;
  };
}

function readProcStat(): string {
  try {
    return readFileSync('/proc/stat', 'utf8');
  } catch {
    return '';
  }
}

/** Fields as in proc_stat(5). `user` and `nice` already include the time of this machine's guests. */
function cpuTime(stat: string): CpuTime {
  const [line = ''] = stat.split('\n');
  const [user = 0, nice = 0, system = 0, , , irq = 0, softIrq = 0, stolen = 0] = line
    .split(/ +/)
    .slice(1)
    .map(Number);
  return { wanted: user + nice + system + irq + softIrq + stolen, stolen };
}
