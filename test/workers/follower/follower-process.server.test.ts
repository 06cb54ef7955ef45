// The follower as a process, while its Temporal server does not answer: it continues the runs that it followed before.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { freePort } from '../../../src/stack/free-port.js';
import { recordsOf, writeAll } from './written-run.js';
import { until } from '../../support/until.js';

const register = fileURLToPath(new URL('../../support/preloads/typescript-register.mjs', import.meta.url));
const program = fileURLToPath(new URL('../../../src/workers/follower-main.ts', import.meta.url));
const run = 'demo';

describe('the follower while Temporal is away', () => {
  let root: string;
  let child: ChildProcess | null = null;

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'longhaul-follower-process-'));
  });
  afterEach(() => {
    child?.kill('SIGKILL');
    rmSync(root, { recursive: true, force: true });
  });

  const folder = (): string => join(root, 'follower');
  const points = (): string[] => {
    const file = join(folder(), 'tracking', run, 'metrics.jsonl');
    return existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : [];
  };
  const write = (path: string, value: unknown): void => {
    mkdirSync(join(folder(), path, '..'), { recursive: true });
    writeFileSync(join(folder(), path), JSON.stringify(value));
  };
  const start = async (): Promise<{ said: () => string; stop: () => Promise<number> }> => {
    const store = `dir:${join(root, 'store')}`;
    const temporal = `127.0.0.1:${await freePort()}`;
    const flags = ['--store', store, '--folder', folder(), '--temporal-address', temporal];
    const process_ = spawn(process.execPath, [
      ...['--import', register, program, ...flags, '--no-temporal-profile'],
    ]);
    child = process_;
    let said = '';
    process_.stderr.on('data', (piece: Buffer) => (said += piece.toString()));
    const ended = once(process_, 'exit');
    return {
      said: () => said,
      stop: async () => {
        const begun = Date.now();
        process_.kill('SIGTERM');
        await ended;
        return Date.now() - begun;
      },
    };
  };

  it('continues a run after each start, even if the folder of a run with the same name from another store was moved away', async () => {
    const store = await openDirectoryStore(join(root, 'store'));
    const records = recordsOf({ run, steps: 6 });
    const last = records.splice(-4);
    await writeAll(store, records);
    write(`runs/${run}.json`, { workflowId: `train/${run}`, firstRunId: 'first', over: false });
    write(`notes/${run}/identity.json`, { digest: 'b'.repeat(64) });
    const before = await start();
    await until(() => points().length > 2, 'its first points');
    await before.stop();
    const had = points().length;
    await writeAll(store, last);
    const after = await start();
    await until(() => points().length > had, 'its last points');
    const stoppedMs = await after.stop();
    // The supervisor kills it after 15 s; then the files would lack the last committed steps.
    expect(stoppedMs).toBeLessThan(12_000);
    expect(after.said()).not.toContain(`${run}@`);
  });
});
