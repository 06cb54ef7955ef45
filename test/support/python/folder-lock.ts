// A lock between processes: a folder. Its holder keeps it fresh, so that others notice when the holder was killed.
import { mkdirSync, rmSync, statSync } from 'node:fs';
import { utimes } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';

export interface LockTimes {
  /** Time between two touches of the folder by its holder. */
  touchMs: number;
  /** A folder that was not touched for this long counts as abandoned. */
  abandonedMs: number;
  /** Time between two attempts of a process that waits. */
  waitMs: number;
}

const defaults: LockTimes = { touchMs: 5_000, abandonedMs: 120_000, waitMs: 500 };

/** Does the work while this process alone holds the lock. Waits for the holder before it as long as that one lives. */
export async function withFolderLock<T>(
  lock: string,
  work: () => Promise<T>,
  { touchMs, abandonedMs, waitMs }: LockTimes = defaults,
): Promise<T> {
  while (!tryLock(lock, abandonedMs)) await delay(waitMs);
  const touching = setInterval(() => void touch(lock), touchMs).unref();
  try {
    return await work();
  } finally {
    clearInterval(touching);
    rmSync(lock, { recursive: true, force: true });
  }
}

function tryLock(lock: string, abandonedMs: number): boolean {
  try {
    mkdirSync(lock);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    const touched = statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    if (Date.now() - touched > abandonedMs) rmSync(lock, { recursive: true, force: true });
    return false;
  }
}

async function touch(lock: string): Promise<void> {
  const now = new Date();
  // It fails if somebody has removed the lock by hand.
  await utimes(lock, now, now).catch(() => undefined);
}
