// What killed writers leave behind: files and folders under temporary names that are never renamed, each as big as a whole state.
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** No writer is silent for this long: a transfer gives up far earlier. */
const silentMs = 15 * 60_000;

/**
 * Removes files and folders that an engine (`*.tmp-PID`) or a transfer (`*.part`) began in `folder` and can no longer finish. Called before
 * a state is written there, because a few leftovers may fill the disk. `prefix`: only names that begin with it are looked at.
 */
export async function removeLeftovers(folder: string, prefix = ''): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  await Promise.all(
    names.map(async (name) => {
      const writer = /\.(?:tmp-(?<pid>\d+)|part)$/.exec(name);
      if (!writer || !name.startsWith(prefix)) return;
      const path = join(folder, name);
      const pid = writer.groups?.['pid'];
      if ((pid !== undefined && !isAlive(Number(pid))) || (await isSilent(path)))
        await rm(path, { recursive: true, force: true });
    }),
  );
}

/** A process id that the system has reused counts as alive: then the file's age decides. */
function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function isSilent(path: string): Promise<boolean> {
  // Its writer may just have renamed it.
  const found = await stat(path).catch(() => null);
  return found !== null && Date.now() - found.mtimeMs > silentMs;
}
