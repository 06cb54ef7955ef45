// Work that only one of several test processes may do at a time.
import { setTimeout as delay } from 'node:timers/promises';
import { lockFile } from '../../src/workers/process/folder-lock.js';

/** Waits until the process that does it now has finished, or has ended. */
export async function exclusively<T>(lockPath: string, work: () => Promise<T>): Promise<T> {
  for (;;) {
    const lock = lockFile(lockPath, 'a test');
    if ('holder' in lock) {
      await delay(250);
      continue;
    }
    try {
      return await work();
    } finally {
      lock.release();
    }
  }
}
