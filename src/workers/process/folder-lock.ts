// Allows one process per folder (R29), by an exclusive transaction on an SQLite file: when the process ends, the operating system ends the
// transaction. The file is never removed: otherwise two processes could lock two files of the same name. A note beside the file names the
// holder, for people.
import { createRequire } from 'node:module';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type BetterSqlite3 from 'better-sqlite3';
import { isAlive, ownIdentity, type ProcessIdentity } from './process-identity.js';

interface LockHolder extends ProcessIdentity {
  /** The holder's address or command, for people. */
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
        : `${folder} is in use by a process that is not visible here (in another container or on another machine), or that is just starting. ` +
            'Use that one, stop it, or choose another folder',
    );
    this.name = 'FolderLocked';
  }
}

export interface FolderLock {
  release(): void;
}

/** Another process holds the lock. `holder`: null if that process is not known. */
interface Refusal {
  holder: LockHolder | null;
}

/** How long to wait for the holder's note. A holder writes it at once; a holder in another container cannot be seen from here. */
const noteMs = 1_000;
/** Keeps the connections referenced: a garbage-collected connection would end its transaction. */
const held = new Set<BetterSqlite3.Database>();

/** Throws `FolderLocked` if a living process holds the folder. */
export function lockFolder(folder: string, address: string): FolderLock {
  makeFolder(folder);
  const locked = lockFile(join(folder, 'lock'), address);
  if ('holder' in locked) throw new FolderLocked(folder, locked.holder);
  return locked;
}

/** Makes one level after the other: in a kernel's folder such as /proc, Node's `recursive` option never returns. */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return;
  const parent = dirname(folder);
  if (parent !== folder) makeFolder(parent);
  try {
    // The folder is private: it holds this user's logs, states and databases.
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return;
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`the folder ${folder} cannot be created: ${reason}; choose another one with --folder`, {
      cause: error,
    });
  }
}

/** Locks PATH.sqlite and writes the note PATH.json, or returns the current holder. The folder must exist. */
export function lockFile(path: string, address: string): FolderLock | Refusal {
  const note = `${path}.json`;
  const deadline = performance.now() + noteMs;
  for (;;) {
    const database = lockedDatabase(`${path}.sqlite`);
    const living = holderIn(note);
    if (database && !living) return keep(database, note, address);
    database?.close();
    // Wait if only the lock or only the note shows a holder: the holder may be about to end, or may not have written its note yet.
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

/** The living holder that the folder's note names; null if the folder is free. */
export function holderOf(folder: string): LockHolder | null {
  return holderIn(join(folder, 'lock.json'));
}

/** Opens and locks the database; null if another process has locked it. */
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
    throw unlockable(path, code, message, error);
  }
}

/** A full disk is a temporary problem: its error has a code on which the supervisor waits instead of giving up. */
export function unlockable(path: string, code: string, message: string, cause?: unknown): Error {
  if (code === 'SQLITE_FULL')
    return Object.assign(
      new Error(`no space for ${path}: free some space on its disk; nothing was lost`, { cause }),
      {
        code: 'ENOSPC',
      },
    );
  return new Error(
    `${path} cannot be locked: ${message}; make the folder writable, or remove the file if nothing runs in the folder`,
    { cause },
  );
}

/** The living process that a note names. Earlier versions have only the note: it counts as a lock while that process lives. */
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
