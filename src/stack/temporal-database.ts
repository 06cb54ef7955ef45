// Checks the database of the stack's Temporal server before the server opens it. The server's own error names neither the file nor a remedy; and
// if only later pages are damaged, the server starts, but every run waits for ever.
import { createRequire } from 'node:module';
import { existsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type BetterSqlite3 from 'better-sqlite3';

/** Files that belong to a SQLite database; used with another database, they would damage it. */
const companions = ['-journal', '-wal', '-shm'];

/** Throws if the database is damaged, with what to do. Reads the whole file, about a second a GB. Call it while no server has it open. */
export function refuseDamagedDatabase(file: string): void {
  if (!existsSync(file)) return;
  const damage = damageOf(file);
  if (damage === null) return;
  const files = [file, ...companions.map((end) => `${file}${end}`).filter((path) => existsSync(path))];
  const folder = ` --folder ${dirname(file)}`;
  throw new Error(
    `${file}, the database of this folder's Temporal server, is damaged: ${damage}. Nothing was started. ` +
      `Move ${files.join(' and ')} away, and put a backup in its place if there is one. Without a backup, the next start makes an empty ` +
      'database: workflow histories and schedules of sweeps are lost, and the records in the store remain. Then ' +
      `\`longhaul runs${folder}\` lists the runs, \`longhaul train --run RUN${folder}\` continues one from its records, and ` +
      `\`longhaul sweeps apply FILE${folder}\` makes a schedule again`,
  );
}

/** What is wrong with the database, in SQLite's words; null if nothing is wrong, or if it is not known. */
function damageOf(file: string): string | null {
  // To SQLite an empty file is a new database, but the server creates its tables only if there is no file.
  if (statSync(file).size === 0) return 'it is empty';
  const require = createRequire(import.meta.url);
  const Database = require('better-sqlite3') as typeof BetterSqlite3;
  let database: BetterSqlite3.Database | null = null;
  try {
    // Not opened read-only: a killed server leaves a journal, and SQLite must roll back its unfinished transaction before anybody can read.
    database = new Database(file, { fileMustExist: true });
    const verdict = String(database.pragma('quick_check(1)', { simple: true }));
    return verdict === 'ok' ? null : (verdict.split('\n').at(-1) ?? verdict);
  } catch (error) {
    const { code = '', message } = error as { code?: string; message: string };
    // Other errors, such as a missing permission, say nothing about the bytes; the server reports them itself.
    return /^SQLITE_(CORRUPT|NOTADB)/.test(code) ? message : null;
  } finally {
    database?.close();
  }
}
