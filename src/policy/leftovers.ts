// Files and folders that killed writers leave behind. They have temporary names, are never renamed, and can each be as big as a state.
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** A file that has not changed for this long has no living writer: a transfer gives up much earlier. */
const silentMs = 15 * 60_000;

/**
 * Removes files and folders in `folder` that an engine (`*.tmp-PID`) or a transfer (`*.part`) began and cannot finish any more. Call before
 * a state is written there, because a few leftovers may fill the disk. `prefix`: only names that begin with it.
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

/** Removes all of these files or folders but the `keep` that were changed last. */
export async function keepNewest(paths: readonly string[], keep: number): Promise<void> {
  const aged = await Promise.all(
    paths.map(async (path) => ({ path, at: (await stat(path).catch(() => null))?.mtimeMs ?? 0 })),
  );
  const older = aged.sort((a, b) => b.at - a.at).slice(keep);
  await Promise.all(older.map(({ path }) => rm(path, { recursive: true, force: true })));
}

/** Also true if another process has taken the id; then only the file's age counts. */
function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function isSilent(path: string): Promise<boolean> {
  // The file may be missing: its writer may just have renamed it.
  const found = await stat(path).catch(() => null);
  return found !== null && Date.now() - found.mtimeMs > silentMs;
}
