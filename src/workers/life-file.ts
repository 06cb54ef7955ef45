// A file that a worker touches while it lives: from it the next process on its folder knows how long the first one has been dead.
import { readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { type Predecessor, ProcessLife } from '../activities/process-life.js';

/** How exactly a death is known. */
const touchedEveryMs = 250;

export interface KeptLife {
  life: ProcessLife;
  /** Says that this process ends because it was told to; it does so by itself when it exits with 0. */
  leave(): void;
}

/** Call when the file's folder is locked: a predecessor is dead then. `name`: of the worker, the same after a restart. */
export function keepLife(path: string, name: string, restart: ProcessLife['restart']): KeptLife {
  const predecessor = readPredecessor(path);
  const life = new ProcessLife({ name, host: hostname(), pid: process.pid }, predecessor, restart);
  const { identity } = life;
  const write = (left: boolean): void => writeFileSync(path, JSON.stringify({ identity, left }));
  attempt(() => write(false));
  const timer = setInterval(() => {
    const now = new Date();
    attempt(() => utimesSync(path, now, now));
  }, touchedEveryMs);
  timer.unref();
  const leave = (): void => {
    clearInterval(timer);
    attempt(() => write(true));
  };
  // Also of a process that could not end all of its work in time.
  process.once('exit', (code) => {
    if (code === 0) leave();
  });
  return { life, leave };
}

/** A full disk costs evidence, and nothing else. */
function attempt(write: () => void): void {
  try {
    write();
  } catch {
    // The next process takes this one for dead since the last touch.
  }
}

function readPredecessor(path: string): Predecessor | null {
  try {
    const { identity, left } = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
    if (typeof identity !== 'string') return null;
    const aliveAt = Math.round(statSync(path).mtimeMs);
    // Whoever started this process knew of the death.
    const noticedAt = Math.max(Math.round(performance.timeOrigin), aliveAt);
    return { identity, aliveAt, noticedAt, left: left === true };
  } catch {
    return null;
  }
}
