// How much of the CPU time that was wanted the machine below a virtual one gave to others: what was measured meanwhile is too slow.
import { readFileSync } from 'node:fs';

interface CpuTime {
  wanted: number;
  stolen: number;
}

/** Begins to count; the function returned gives the share since then, 0..1, and 0 where the kernel does not tell. */
export function countStolenTime(): () => number {
  const first = cpuTime();
  return () => {
    const now = cpuTime();
    const wanted = now.wanted - first.wanted;
    return wanted > 0 ? (now.stolen - first.stolen) / wanted : 0;
  };
}

/** In ticks of all cores; fields as proc_stat(5) has them. */
function cpuTime(): CpuTime {
  try {
    const [line = ''] = readFileSync('/proc/stat', 'utf8').split('\n');
    const fields = line.trim().split(/ +/).slice(1).map(Number);
    const [user = 0, nice = 0, system = 0, , , irq = 0, softIrq = 0, stolen = 0] = fields;
    return { wanted: user + nice + system + irq + softIrq + stolen, stolen };
  } catch {
    return { wanted: 0, stolen: 0 };
  }
}
