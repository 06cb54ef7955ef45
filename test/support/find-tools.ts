// Finds the binaries that tests start, where the set-up put them. If one is missing, the error names the command that installs it.
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type BuiltTool, builtToolPath } from '../../src/workers/process/built-tool.js';

/** The `temporal` CLI, which contains the dev server. LONGHAUL_TEMPORAL replaces it. */
export function findTemporal(): string {
  return find('temporal', 'LONGHAUL_TEMPORAL', 'bash tools/ensure-temporal.sh', { path: true });
}

/** The S3 server of the tests. LONGHAUL_VERSITYGW replaces it. */
export function findVersitygw(): string {
  return find('versitygw', 'LONGHAUL_VERSITYGW', 'node tools/setup.mjs --only versitygw', { path: true });
}

/** The native engine. LONGHAUL_ENGINE replaces it. */
export function findEngine(): string {
  return find('engine', 'LONGHAUL_ENGINE', 'npm run build:native', { path: false });
}

/** The native engine with the emulated device in place of a GPU. */
export function findEmulatedEngine(): string {
  return find('engine-emulated', 'LONGHAUL_EMULATED_ENGINE', 'node tools/setup.mjs --tests', { path: false });
}

function find(tool: BuiltTool, variable: string, command: string, search: { path: boolean }): string {
  const folders = search.path ? (process.env['PATH'] ?? '').split(delimiter) : [];
  const candidates = [
    process.env[variable],
    ...folders.map((folder) => join(folder, tool)),
    builtToolPath(tool),
  ];
  for (const candidate of candidates) if (candidate && isExecutable(candidate)) return candidate;
  throw new Error(`${tool} was not found (${variable}, PATH, set-up's cache). Fetch it with: ${command}`);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
