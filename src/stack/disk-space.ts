// Reports in plain words that a disk is full. The processes on it fail with different errors, and Temporal's server does not answer at all.
import { statfsSync } from 'node:fs';

/** With less free space than this, SQLite and a stack's logs begin to fail. */
const fullBelowBytes = 16 * 1024 * 1024;

type Free = (folder: string) => number;

const freeBytes: Free = (folder) => {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
};

/** Null if the folder's disk has room, or if its free space cannot be read. */
export function fullDiskNote(folder: string, free: Free = freeBytes): string | null {
  let bytes: number;
  try {
    bytes = free(folder);
  } catch {
    return null;
  }
  if (bytes >= fullBelowBytes) return null;
  const mib = (bytes / 1024 / 1024).toFixed(1);
  return `the disk of ${folder} is full (${mib} MiB free): make room there; runs wait, nothing is lost, and they go on by themselves`;
}

/** Reports once when the disk is full, and once when it has room again. The returned function ends the watch. */
export function watchDisk(
  folder: string,
  log: (message: string) => void,
  { everyMs = 5_000, free = freeBytes }: { everyMs?: number; free?: Free } = {},
): () => void {
  let isFull = false;
  const look = (): void => {
    const note = fullDiskNote(folder, free);
    if (note !== null && !isFull) log(note);
    if (note === null && isFull) log(`the disk of ${folder} has room again`);
    isFull = note !== null;
  };
  const timer = setInterval(look, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}
