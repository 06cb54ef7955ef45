// Makes a folder's entries durable. All waiting callers share one fsync (group commit).
import { mkdir, open } from 'node:fs/promises';
import { dirname } from 'node:path';

const alreadyDurable = Promise.resolve();

export type FolderSync = ReturnType<typeof createFolderSync>;

/** `remembered`: number of durable folders to remember. A forgotten folder costs an fsync at its next use. */
export function createFolderSync(root: string, remembered = 1024) {
  const running = new Map<string, Promise<void>>();
  const waiting = new Map<string, Promise<void>>();
  const durable = new Map<string, Promise<void>>();

  /** Resolves when an fsync of `folder` that began after this call is done. */
  function settle(folder: string): Promise<void> {
    const joined = waiting.get(folder);
    if (joined) return joined;
    const current = running.get(folder);
    if (!current) return start(folder);
    // The running fsync may have begun before the caller's entry was there: wait for it, then sync once for all.
    const next = current
      .catch(() => undefined)
      .then(() => {
        waiting.delete(folder);
        return start(folder);
      });
    waiting.set(folder, next);
    return next;
  }

  function start(folder: string): Promise<void> {
    const done = syncFolder(folder).finally(() => {
      if (running.get(folder) === done) running.delete(folder);
    });
    running.set(folder, done);
    return done;
  }

  /** Makes `folder` and its missing parents durable, down from the root. */
  function ensureFolder(folder: string): Promise<void> {
    if (folder === root) return Promise.resolve();
    const made = durable.get(folder) ?? making(folder);
    // The map is in order of last use, so this drops the least recently used folder. A long run makes new folders at every step.
    durable.delete(folder);
    durable.set(folder, made);
    const [oldest] = durable.keys();
    if (durable.size > remembered && oldest !== undefined) durable.delete(oldest);
    return made;
  }

  function making(folder: string): Promise<void> {
    const made = makeFolder(folder).then(
      // The promise would keep the calling activity and all its data in memory: replace it by a shared promise.
      () => void (durable.get(folder) === made && durable.set(folder, alreadyDurable)),
      (error: unknown) => {
        forget(folder);
        throw error;
      },
    );
    return made;
  }

  async function makeFolder(folder: string): Promise<void> {
    const parent = dirname(folder);
    await ensureFolder(parent);
    try {
      await mkdir(folder);
    } catch (error) {
      // Another process may have made this folder and not synced it yet: sync it in any case.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    await settle(parent);
  }

  /** Call before `folder` is used again if it may have been deleted. */
  function forget(folder: string): void {
    for (let path = folder; path.length > root.length; path = dirname(path)) durable.delete(path);
  }

  return { settle, ensureFolder, forget };
}

async function syncFolder(folder: string): Promise<void> {
  let handle;
  try {
    handle = await open(folder, 'r');
  } catch (error) {
    // The folder was deleted meanwhile: nothing is left to sync.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
