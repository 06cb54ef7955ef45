// Shared by the tests of `longhaul status` and `longhaul runs`: a Temporal server, a store, and the command line.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { type Answer, longhaul as commandLine } from '../../support/command-line.js';
import { startTemporal, type TestTemporal } from '../../support/servers/temporal-server.js';
import { workflowBundle } from '../../workflows/scripted-run.js';

export let folder: string;
export let storeAddress: string;
export let temporal: TestTemporal;
export let store: ObjectStore;

/** Starts the server and opens the store before the file's tests. */
export function useCommandStage(): void {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'longhaul-cli-status-'));
    storeAddress = `dir:${join(folder, 'store')}`;
    [temporal, store] = await Promise.all([startTemporal(), openStore(storeAddress), workflowBundle()]);
  });
  afterAll(async () => {
    await temporal?.stop();
    rmSync(folder, { recursive: true, force: true });
  });
}

export const longhaul = (...args: string[]): Promise<Answer> =>
  commandLine([...args, '--temporal-address', temporal.address], { cwd: folder });
