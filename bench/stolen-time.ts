// How much of the CPU time that was wanted the machine below a virtual one gave to others: what was measured meanwhile is too slow.
import { readFileSync } from 'node:fs';

/** In ticks of all cores. */
interface CpuTime {
  wanted: number;
  stolen: number;
}

/** Fewer are no share of anything: 5 s. */
const fewestTicks = 500;

/** Begins to count; the function returned gives the share since then, 0..1. `read` gives `/proc/stat`; 0 where there is none. */
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

/** Fields as in proc_stat(5): what guests of this machine used is in `user` and `nice` already. */
function cpuTime(stat: string): CpuTime {
  const [line = ''] = stat.split('\n');
  const [user = 0, nice = 0, system = 0, , , irq = 0, softIrq = 0, stolen = 0] = line
    .split(/ +/)
    .slice(1)
    .map(Number);
  return { wanted: user + nice + system + irq + softIrq + stolen, stolen };
}
