// `longhaul up` beside a Tinker server that does not answer: it says at once what it waits for, and Ctrl-C ends it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { freePort } from '../../../src/stack/free-port.js';
import { holderOf } from '../../../src/workers/process/folder-lock.js';
import { until } from '../../support/until.js';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'longhaul-interrupted-'))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

it.each(['SIGINT', 'SIGTERM'] as const)(
  'a start that waits for a dead server says so at once, and %s stops its processes',
  async (signal) => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const ports = ['--temporal-port', String(await freePort()), '--ui-port', String(await freePort())];
    const child = spawn(resolve('bin/longhaul'), ['up', '--folder', join(folder, 'stack'), ...ports], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, LONGHAUL_TINKER: url, LONGHAUL_TINKER_SERVICE: 'skyrl' },
    });
    let errors = '';
    child.stderr.on('data', (piece: Buffer) => (errors += piece.toString()));
    const closed = once(child, 'close');
    await until(() => errors.includes('is waited for'), 'the wait to be said');
    expect(errors).toContain(
      `node waits: the Tinker server skyrl is waited for: no Tinker server answers at ${url}`,
    );
    child.kill(signal);
    const askedAt = Date.now();
    await closed;
    expect(errors.trimEnd()).toMatch(/\n[\d:]+ stopping the stack$/);
    // The start would have gone on for 240 s. Processes of a busy machine take their grace of 15 s.
    expect(Date.now() - askedAt).toBeLessThan(60_000);
    expect(holderOf(join(folder, 'stack'))).toBeNull();
  },
);
