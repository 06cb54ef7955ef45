// Finds processes that a killed supervisor has left, even if its list is lost: each has its stack's mark in its environment. This reads
// /proc and so works on Linux only; other systems rely on the list.
import { readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { identityOf } from '../workers/process/process-identity.js';
import type { RegisteredProcess } from './process-registry.js';

/** Variable with the mark: `NAME:FOLDER`, in the environment of every process that a stack's supervisor starts. */
const mark = 'LONGHAUL_STACK';

export function stackMark(name: string, folder: string): Record<string, string> {
  return { [mark]: `${name}:${realpathSync(folder)}` };
}

/** All processes with the folder's mark. Call only while the folder is locked: then no living supervisor owns them. */
export function markedProcesses(folder: string): RegisteredProcess[] {
  const place = realpathSync(folder);
  return processIds().flatMap((pid) => {
    const environment = textOf(`/proc/${pid}/environ`).split('\0');
    const marked = environment.find((variable) => variable.startsWith(`${mark}=`));
    const [name = '', ...rest] = (marked?.slice(mark.length + 1) ?? '').split(':');
    const identity = rest.join(':') === place && pid !== process.pid ? identityOf(pid) : null;
    return identity ? [{ name, ...identity }] : [];
  });
}

/** Throws if an unknown Temporal server has the database open: a second server would destroy the database. */
export function refuseSecondServer(databaseFile: string): void {
  const database = statSync(databaseFile, { throwIfNoEntry: false });
  if (!database) return;
  for (const pid of processIds()) {
    const command = textOf(`/proc/${pid}/cmdline`).split('\0').join(' ').trim();
    if (!/\bstart-dev\b/.test(command) || !hasOpen(pid, database)) continue;
    throw new Error(
      `process ${pid} (${command.slice(0, 60)}…) is a Temporal server that uses ${databaseFile}, but this folder's list of ` +
        `processes does not name it: end it with \`kill ${pid}\`, then start the stack again`,
    );
  }
}

function hasOpen(pid: number, { dev, ino }: { dev: number; ino: number }): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => {
      const open = statSync(join(`/proc/${pid}/fd`, fd), { throwIfNoEntry: false });
      return open?.dev === dev && open.ino === ino;
    });
  } catch {
    // The process has ended, or belongs to another user, who cannot open our database.
    return false;
  }
}

function processIds(): number[] {
  try {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(Number);
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
