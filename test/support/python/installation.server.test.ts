// What the installation of Python packages relies on: a lock that is free again after its holder was killed, and a limit of silence.
import { existsSync, mkdirSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { scratchFolder } from '../scratch-folder.js';
import { withFolderLock } from './folder-lock.js';
import { runWithSilenceLimit } from './silence-limit.js';

describe.concurrent('a lock', () => {
  const folder = scratchFolder();
  const times = { touchMs: 50, abandonedMs: 4_000, waitMs: 10 };

  it('is held by one at a time, for longer than the time after which one that is not touched counts as abandoned', async () => {
    const lock = join(folder, 'held');
    const events: string[] = [];
    const work = (name: string, ms: number) =>
      withFolderLock(
        lock,
        async () => {
          events.push(`${name} begins`);
          await delay(ms);
          events.push(`${name} ends`);
        },
        times,
      );
    await Promise.all([work('first', 5_000), work('second', 0)]);
    expect(events).toEqual(['first begins', 'first ends', 'second begins', 'second ends']);
    expect(existsSync(lock)).toBe(false);
  });

  it('of a killed holder is taken over, but not before it counts as abandoned', async () => {
    const lock = join(folder, 'left');
    mkdirSync(lock);
    const left = Date.now() - 3_000;
    utimesSync(lock, new Date(left), new Date(left));
    await withFolderLock(lock, () => Promise.resolve(), times);
    expect(Date.now() - left).toBeGreaterThan(times.abandonedMs);
  });

  it('is free after a failure', async () => {
    const lock = join(folder, 'failed');
    await expect(withFolderLock(lock, () => Promise.reject(new Error('no space')), times)).rejects.toThrow(
      'no space',
    );
    expect(existsSync(lock)).toBe(false);
  });
});

describe.concurrent('a command with a limit of silence', () => {
  const node = (script: string, silenceMs?: number) =>
    runWithSilenceLimit(process.execPath, ['-e', script], silenceMs);

  it('may take longer than the limit while it prints', async () => {
    await node(
      'let n = 0; const t = setInterval(() => { console.log(n); if (++n > 20) clearInterval(t); }, 250)',
      4_000,
    );
  });

  it('is ended when it prints nothing, with the processes that it has started', async () => {
    const script = `
      const { spawn } = require('node:child_process');
      spawn(process.execPath, ['-e', 'setInterval(() => undefined, 1000)'], { stdio: 'inherit' });
      console.log('Building wheel');
      setInterval(() => undefined, 1000);`;
    await expect(node(script, 4_000)).rejects.toThrow(
      /printed nothing for 4 s and was ended: Building wheel/,
    );
  });

  it('that fails rejects with the end of its output', async () => {
    await expect(node('console.error("no such package"); process.exit(3)')).rejects.toThrow(
      / ended with 3: no such package/,
    );
    await expect(runWithSilenceLimit('/nowhere/python', [])).rejects.toThrow(/did not start/);
  });
});
