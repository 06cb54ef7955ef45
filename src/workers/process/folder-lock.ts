// One process per folder (R29): an exclusive transaction on an SQLite file, which the operating system ends with its holder. The file
// stays: removing it would let two processes lock two files of one name. Beside it a note names the holder, for people.
import { createRequire } from 'node:module';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type BetterSqlite3 from 'better-sqlite3';
import { isAlive, ownIdentity, type ProcessIdentity } from './process-identity.js';

export interface LockHolder extends ProcessIdentity {
  /** Where the holder can be reached, for people: an address or a command. */
  address: string;
}

export class FolderLocked extends Error {
  constructor(
    readonly folder: string,
    readonly holder: LockHolder | null,
  ) {
    super(
      holder
        ? `${folder} is in use by process ${holder.pid} (${holder.address}). ` +
            `Use that one, stop it (kill ${holder.pid}), or choose another folder`
        : `${folder} is in use by a process that this machine or container does not show, or that is just starting. ` +
            'Use that one, stop it, or choose another folder',
    );
    this.name = 'FolderLocked';
  }
}

export interface FolderLock {
  release(): void;
}

/** Null if no living process is seen to hold it. */
export interface Refusal {
  holder: LockHolder | null;
}

/** How long a refusal waits for the holder's name: one writes its note at once, and one in another container is never seen. */
const noteMs = 1_000;
/** Transactions end with their connections, and connections with their last reference. */
const held = new Set<BetterSqlite3.Database>();

/** Throws `FolderLocked` when a living process holds the folder. */
export function lockFolder(folder: string, address: string): FolderLock {
  makeFolder(folder);
  const locked = lockFile(join(folder, 'lock'), address);
  if ('holder' in locked) throw new FolderLocked(folder, locked.holder);
  return locked;
}

/** One level after the other: below a folder of the kernel's, as /proc, Node's own recursion never ends. */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  const parent = dirname(folder);
  if (parent !== folder) makeFolder(parent);
  try {
    // Logs, states and databases are private to this user.
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return;
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`the folder ${folder} cannot be made: ${reason}; choose another one with --folder`, {
      cause: error,
    });
  }
}

/** The lock PATH.sqlite with its note PATH.json, or its holder. Their folder exists. */
export function lockFile(path: string, address: string): FolderLock | Refusal {
  const note = `${path}.json`;
  const deadline = performance.now() + noteMs;
  for (;;) {
    const database = lockedDatabase(`${path}.sqlite`);
    const living = holderIn(note);
    if (database && !living) return keep(database, note, address);
    database?.close();
    // A process may live a little longer than its files, and the note may be the previous holder's.
    if ((living && !database) || performance.now() > deadline) return { holder: living };
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5 + 10 * Math.random());
  }
}

function keep(database: BetterSqlite3.Database, note: string, address: string): FolderLock {
  try {
    writeFileSync(`${note}.draft`, `${JSON.stringify({ ...ownIdentity(), address })}\n`);
    renameSync(`${note}.draft`, note);
  } catch (error) {
    database.close();
    throw error;
  }
  held.add(database);
  const release = (): void => {
    if (!held.delete(database)) return;
    rmSync(note, { force: true });
    database.close();
  };
  return { release };
}

/** The living holder of a folder, from its note; null if the folder is free. */
export function holderOf(folder: string): LockHolder | null {
  return holderIn(join(folder, 'lock.json'));
}

/** Null if another process has locked it. */
function lockedDatabase(path: string): BetterSqlite3.Database | null {
  const require = createRequire(import.meta.url);
  const Database = require('better-sqlite3') as typeof BetterSqlite3;
  let database: BetterSqlite3.Database | null = null;
  try {
    database = new Database(path, { timeout: 5 });
    database.exec('BEGIN EXCLUSIVE');
    return database;
  } catch (error) {
    database?.close();
    const { code = '', message } = error as { code?: string; message: string };
    if (code.startsWith('SQLITE_BUSY')) return null;
    throw new Error(
      `${path} cannot be locked: ${message}; see that the folder can be written to, or, where nothing runs in it, remove the file`,
      {
        cause: error,
      },
    );
  }
}

/** Versions before this one have no lock but the note: it counts as one while the process that it names lives. */
function holderIn(path: string): LockHolder | null {
  try {
    const holder = JSON.parse(readFileSync(path, 'utf8')) as Partial<LockHolder> | null;
    if (typeof holder?.pid !== 'number' || typeof holder.startTime !== 'string') return null;
    const { pid, startTime, address } = holder;
    return isAlive({ pid, startTime }) ? { pid, startTime, address: String(address) } : null;
  } catch {
    return null;
  }
}
