// A file that a worker touches while it lives: it shows the next process on its folder how long the first one has been dead.
import { readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { type Predecessor, ProcessLife } from '../../activities/attempt/process-life.js';

interface LifeFile {
  identity: string;
  /** It was asked to end, and did. */
  left: boolean;
  /** Predecessor of a process that has not served yet: it is the next one's predecessor too. */
  before?: Predecessor | null;
}

/** Resolution at which a death is known. */
const touchedEveryMs = 250;

export interface KeptLife {
  life: ProcessLife;
  /**
   * From now on the next process sees this one as its predecessor. A process that ends before it has served does not count: it began
   * nothing.
   */
  serves(): void;
  /** Records that this process ends on request; called automatically when it exits with 0. */
  leave(): void;
}

/** Call when the file's folder is locked: a predecessor is dead then. `name`: of the worker, the same after a restart. */
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
  // Also for a process that could not end all of its work in time.
  process.once('exit', (code) => {
    if (code === 0) leave();
  });
  const serves = (): void => {
    served = true;
    attempt(() => write({ left: false }));
  };
  return { life, serves, leave };
}

/** A full disk costs only evidence. */
function attempt(write: () => void): void {
  try {
    write();
  } catch {
    // The next process takes this one for dead since the last touch.
  }
}

function readPredecessor(path: string): Predecessor | null {
  try {
    const { identity, left, before } = JSON.parse(readFileSync(path, 'utf8')) as Partial<LifeFile>;
    if (before !== undefined) return before;
    if (typeof identity !== 'string') return null;
    const aliveAt = Math.round(statSync(path).mtimeMs);
    // The process that started this one knew of the death.
    const noticedAt = Math.max(Math.round(performance.timeOrigin), aliveAt);
    return { identity, aliveAt, noticedAt, left: left === true };
  } catch {
    return null;
  }
}
