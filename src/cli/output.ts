// Shared by all commands: the form of errors, and how to find the store.
import { readFileSync } from 'node:fs';
import { access, constants, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { censored } from '../base/known-secrets.js';
import type { OpenedStore } from '../store/runs/episodes.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { openStore } from '../store/open-store.js';
import { listRuns, readRunIfAny } from '../store/runs/run-records.js';
import { defaultStackFolder, nearestStackFolder } from './stack-folder.js';

export { defaultStackFolder };
export const defaultStore = './.longhaul/store';

export interface StoreFlags {
  store: string;
  folder: string;
}

export function folderOption(): Option {
  return new Option('--folder <folder>', 'folder of the embedded stack').default(defaultStackFolder);
}

/** The `--folder` option to append to a suggested command, so that the command can be typed as printed. */
export function inFolder({ folder }: { folder?: string | undefined }): string {
  if (folder === undefined || folder === defaultStackFolder) return '';
  return ` --folder ${/^[\w./~@:+-]+$/.test(folder) ? folder : `'${folder.replaceAll("'", "'\\''")}'`}`;
}

/** The `--store` option: the flag comes first, then LONGHAUL_STORE, then the embedded stack's store. */
export function storeOption(): Option {
  return new Option('--store <address>', 'object store: dir:/path or s3://bucket/prefix')
    .env('LONGHAUL_STORE')
    .default(`dir:${defaultStore}`);
}

/** Opens a store to read it. Unlike a run, a reader must not create an empty store when a person is in the wrong folder. */
export async function openExistingStore(address: string): Promise<OpenedStore> {
  const problem = await storeFolderProblem(address);
  if (problem === 'ENOENT')
    throw new Error(
      `there is no store at ${address}: change to the folder where \`longhaul\` was started, or name the stack with --folder, or the store with --store or LONGHAUL_STORE`,
    );
  if (problem !== null) throw new Error(unreadableStore(address, problem));
  return openStore(address);
}

/** The system's error code if a directory store's folder cannot be read (ENOENT if it is missing), else null. */
export async function storeFolderProblem(address: string): Promise<string | null> {
  // Reads an address as `openStore` does: without a scheme it is a path.
  const folder = /^(?:dir:|(?![a-z][a-z0-9+.-]+:))(.+)$/is.exec(address)?.[1];
  if (folder === undefined) return null;
  try {
    await access(folder, constants.R_OK | constants.X_OK);
    return null;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    return code === 'ENOTDIR' ? 'ENOENT' : code;
  }
}

export function unreadableStore(address: string, code: string): string {
  return `the store at ${address} cannot be read (${code}): run the command as a user who may read it, or change the permissions of its folders`;
}

/**
 * Opens the named store, or else the store of the folder's last stack. If no folder is named, it is the nearest stack folder here or above.
 */
export function openStoreOf(command: Command, { store, folder }: StoreFlags): Promise<OpenedStore> {
  const named = command.getOptionValueSource('store') !== 'default';
  if (named) return openExistingStore(store);
  const here = command.getOptionValueSource('folder') === 'default';
  return openExistingStore(storeOfFolder(here ? nearestStackFolder() : folder));
}

/** Address of the store that the folder's last stack used. */
export function storeOfFolder(folder: string): string {
  try {
    const { store } = JSON.parse(readFileSync(join(folder, 'stack.json'), 'utf8')) as { store?: unknown };
    if (typeof store === 'string') return store;
  } catch {
    // No stack has run there, or its file is damaged: assume a stack's default place.
  }
  return folder === defaultStackFolder ? `dir:${defaultStore}` : `dir:${join(folder, 'store')}`;
}

const namesShown = 10;

/** Throws an error that lists the known runs if `run` does not exist. */
export async function requireRun(store: ObjectStore, run: string): Promise<void> {
  if (await readRunIfAny(store, run)) return;
  const runs = await listRuns(store);
  const known =
    runs.length === 0
      ? 'it has no run yet'
      : `it has ${runs.slice(0, namesShown).join(', ')}${runs.length > namesShown ? ', …' : ''}`;
  throw new Error(`there is no run "${run}" in ${store.address}: ${known}`);
}

/** Writes a page that a person asked for, and creates its folder if needed. */
export async function writeOutput(file: string, page: string | Uint8Array): Promise<void> {
  try {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, page);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new Error(`${file} cannot be written (${code}): name another file with --output`, {
      cause: error,
    });
  }
}

/** The input cannot be understood. The command exits with 2, as for a mistyped option. */
export class BadInput extends Error {
  override readonly name = 'BadInput';
}

/** Parser for options that take a whole number from `least` to `most`. */
export function wholeNumber(least = 0, most = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const number = Number(text);
    if (text.trim() !== '' && Number.isSafeInteger(number) && number >= least && number <= most)
      return number;
    const end = most === Number.MAX_SAFE_INTEGER ? 'up' : `to ${most}`;
    throw new InvalidArgumentError(`It takes a whole number from ${least} ${end}.`);
  };
}

/**
 * Wraps a command's action. On failure it prints a readable line and exits with 1 (2 for `BadInput`). With `--json` the line is
 * `{"error":{"name","message"}}` on standard output, so that a script reads one format. LONGHAUL_DEBUG adds the stack trace.
 */
export function withOutput<Arguments extends unknown[]>(
  action: (...args: Arguments) => Promise<void> | void,
): (...args: Arguments) => Promise<void> {
  return async (...args) => {
    try {
      await action(...args);
    } catch (error) {
      process.exitCode = error instanceof BadInput ? 2 : 1;
      printError(error instanceof Error ? censored(error) : error, args.some(asksForJson));
    }
  };
}

function printError(error: unknown, json: boolean): void {
  const { name, message } = error instanceof Error ? error : { name: 'Error', message: String(error) };
  if (json) console.log(JSON.stringify({ error: { name, message } }));
  else console.error(`error: ${printable(message)}`);
  if (process.env['LONGHAUL_DEBUG'] && error instanceof Error) console.error(error.stack);
}

function asksForJson(argument: unknown): boolean {
  return typeof argument === 'object' && argument !== null && 'json' in argument && argument.json === true;
}

/**
 * Makes untrusted text safe to print: a model's or an environment's may hold control sequences, which can change colours, the clipboard or the
 * window title. Spells out control characters and characters that change the direction of writing. Line ends and tabs stay.
 */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

export function textTable(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
