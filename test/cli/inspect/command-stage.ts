// What tests of `longhaul status` and `longhaul runs` stand on: a Temporal server, a store, and the command line as a process.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { startTemporal, type TestTemporal } from '../../support/servers/temporal-server.js';
import { workflowBundle } from '../../workflows/scripted-run.js';

export const folder = mkdtempSync(join(tmpdir(), 'longhaul-cli-status-'));
export const storeAddress = `dir:${join(folder, 'store')}`;
export let temporal: TestTemporal;
export let store: ObjectStore;

/** Starts the server and opens the store before the file's tests. */
export function useCommandStage(): void {
  beforeAll(async () => {
    [temporal, store] = await Promise.all([startTemporal(), openStore(storeAddress), workflowBundle()]);
  }, 60_000);
  afterAll(async () => {
    await temporal?.stop();
    rmSync(folder, { recursive: true, force: true });
  });
}

export async function longhaul(
  ...args: string[]
): Promise<{ code: number | null; output: string; errors: string }> {
  const child = spawn(resolve('bin/longhaul'), [...args, '--temporal-address', temporal.address], {
    cwd: folder,
  });
  let [output, errors] = ['', ''];
  child.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
  child.stderr.on('data', (piece: Buffer) => (errors += piece.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, output, errors };
}
