// A file that a worker touches while it lives. The folder's next process sees from it when its predecessor died.
import { readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { type Predecessor, ProcessLife } from '../../activities/attempt/process-life.js';

interface LifeFile {
  identity: string;
  /** True if the process ended on request. */
  left: boolean;
  /** Set while the process has not served: its predecessor, which is then also the predecessor of the next process. */
  before?: Predecessor | null;
}

/** The time of a death is known to this precision. */
const touchedEveryMs = 250;

export interface KeptLife {
  life: ProcessLife;
  /**
   * Call when this process serves: from then on it counts as the next process's predecessor. A process that never served began no work and
   * does not count.
   */
  serves(): void;
  /** Records that this process ends on request; called automatically when it exits with 0. */
  leave(): void;
}

/** Call when the file's folder is locked, as then a predecessor is dead. `name`: the worker's name, equal after a restart. */
export function keepLife(path: string, name: string, restart: ProcessLife['restart']): KeptLife {
  const predecessor = readPredecessor(path);
  const life = new ProcessLife({ name, host: hostname(), pid: process.pid }, predecessor, restart);
  const { identity } = life;
  const write = (state: Omit<LifeFile, 'identity'>): void =>
    writeFileSync(path, JSON.stringify({ identity, ...state } satisfies LifeFile));
  let served = false;
  attempt(() => write({ left: false, before: predecessor }));
  const timer = setInterval(() => {
    const now = new Date();
    attempt(() => utimesSync(path, now, now));
  }, touchedEveryMs);
  timer.unref();
  const leave = (): void => {
    clearInterval(timer);
    attempt(() => write(served ? { left: true } : { left: true, before: predecessor }));
  };
  // A process that could not end all its work in time exits with 0, too.
  process.once('exit', (code) => {
    if (code === 0) leave();
  });
  const serves = (): void => {
    served = true;
    attempt(() => write({ left: false }));
  };
  return { life, serves, leave };
}

/** Ignores a failed write: a full disk loses only this information. */
function attempt(write: () => void): void {
  try {
    write();
  } catch {
    // The next process will believe that this process died when it last touched the file.
  }
}

function readPredecessor(path: string): Predecessor | null {
  try {
    const { identity, left, before } = JSON.parse(readFileSync(path, 'utf8')) as Partial<LifeFile>;
    if (before !== undefined) return before;
    if (typeof identity !== 'string') return null;
    const aliveAt = Math.round(statSync(path).mtimeMs);
    // The supervisor had noticed the death when it started this process.
    const noticedAt = Math.max(Math.round(performance.timeOrigin), aliveAt);
    return { identity, aliveAt, noticedAt, left: left === true };
  } catch {
    return null;
  }
}
