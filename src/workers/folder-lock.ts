// One supervisor per folder (R29): the lock is held for the process's lifetime, and a dead holder's lock is taken over.
import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isAlive, ownIdentity, type ProcessIdentity } from './process-identity.js';

export interface LockHolder extends ProcessIdentity {
  /** Where the holder can be reached, for people: an address or a command. */
  address: string;
}

export class FolderLocked extends Error {
  constructor(
    readonly folder: string,
    readonly holder: LockHolder,
  ) {
    super(
      `${folder} is in use by process ${holder.pid} (${holder.address}). ` +
        `Use that one, stop it (kill ${holder.pid}), or choose another folder`,
    );
    this.name = 'FolderLocked';
  }
}

export interface FolderLock {
  release(): void;
}

/** Throws `FolderLocked` when a living process holds the folder. */
export function lockFolder(folder: string, address: string): FolderLock {
  makeFolder(folder);
  const locked = lockFile(join(folder, 'lock.json'), address);
  if ('holder' in locked) throw new FolderLocked(folder, locked.holder);
  return locked;
}

/** One level after the other: below a folder of the kernel's, as /proc, Node's own recursion never ends. */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  const parent = dirname(folder);
  if (parent !== folder) makeFolder(parent);
  try {
    // Logs, states and databases are nobody else's business.
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return;
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`the folder ${folder} cannot be made: ${reason}; choose another one with --folder`, {
      cause: error,
    });
  }
}

/** The lock, or the living process that holds it. The file's folder exists. */
export function lockFile(path: string, address: string): FolderLock | { holder: LockHolder } {
  const mine: LockHolder = { ...ownIdentity(), address };
  const draft = `${path}.${process.pid}`;
  writeFileSync(draft, `${JSON.stringify(mine)}\n`);
  try {
    for (;;) {
      if (linked(draft, path)) return { release: () => releaseIfMine(path, mine) };
      const holder = readHolder(path);
      if (holder && isAlive(holder)) return { holder };
      setAside(path, holder);
    }
  } finally {
    rmSync(draft, { force: true });
  }
}

/** The living holder of a folder, or null. */
export function holderOf(folder: string): LockHolder | null {
  const holder = readHolder(join(folder, 'lock.json'));
  return holder && isAlive(holder) ? holder : null;
}

/** link(2) creates the lock with its content in one step, or not at all. */
function linked(draft: string, path: string): boolean {
  try {
    linkSync(draft, path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Moves a dead holder's lock away; puts it back where a quicker process has locked the folder in between. */
function setAside(path: string, dead: LockHolder | null): void {
  const aside = `${path}.stale.${process.pid}`;
  try {
    renameSync(path, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  const moved = readHolder(aside);
  if (moved && (moved.pid !== dead?.pid || moved.startTime !== dead.startTime)) linked(aside, path);
  rmSync(aside, { force: true });
}

function releaseIfMine(path: string, mine: LockHolder): void {
  const holder = readHolder(path);
  if (holder?.pid === mine.pid && holder.startTime === mine.startTime) rmSync(path, { force: true });
}

function readHolder(path: string): LockHolder | null {
  try {
    const holder = JSON.parse(readFileSync(path, 'utf8')) as Partial<LockHolder> | null;
    if (typeof holder?.pid !== 'number' || typeof holder.startTime !== 'string') return null;
    return { pid: holder.pid, startTime: holder.startTime, address: String(holder.address) };
  } catch {
    return null;
  }
}
