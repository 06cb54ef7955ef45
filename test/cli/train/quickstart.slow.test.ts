// README's first command: it starts the system with the example server, trains, and keeps what is done when a person interrupts it.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../../src/stack/free-port.js';
import { findEngine } from '../../support/find-tools.js';
import { scratchFolder } from '../../support/scratch-folder.js';
import { until } from '../../support/until.js';

const folder = scratchFolder();
const limitMs = 240_000;

function quickstart(): { child: ChildProcess; said: () => string } {
  const child = spawn(resolve('bin/longhaul'), ['quickstart', '--folder', join(folder, 'stack')], {
    env: { ...process.env, LONGHAUL_ENGINE: findEngine() },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (piece: Buffer) => (said += piece.toString()));
  return { child, said: () => said };
}

test(
  'the quickstart trains on the example server, and continues after it was interrupted',
  async () => {
    // As if it had run there before: other tests expect no server at Temporal's usual port.
    mkdirSync(join(folder, 'stack'));
    const [temporal, ui] = [await freePort(), await freePort()];
    const before = { temporal: `127.0.0.1:${temporal}`, ui: `http://127.0.0.1:${ui}` };
    writeFileSync(join(folder, 'stack', 'stack.json'), JSON.stringify(before));
    for (const [words, step] of [
      ['Training quickstart-seed1', 1],
      ['quickstart-seed1 continues where it stopped', 2],
    ] as const) {
      const { child, said } = quickstart();
      await until(() => said().includes(`step ${step}/`) || child.exitCode !== null, `step ${step}`, limitMs);
      expect(said()).toContain(words);
      expect(child.exitCode, said()).toBeNull();
      child.kill('SIGINT');
      const [code] = (await once(child, 'close')) as [number];
      expect(code).toBe(130);
      expect(said()).toContain('All finished work is kept. Continue with: npm run quickstart');
    }
  },
  2 * limitMs,
);
