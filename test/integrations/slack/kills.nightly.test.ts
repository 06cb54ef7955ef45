// After 20 kills, no message is doubled or missing. Tested once with random failures of every await within one process, and once with a
// real process that is killed.
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { until } from '../../support/until.js';
import { type Fault, SlackServer } from '../../support/servers/slack-server.js';
import { history, KeptState, openThread, status, toldIn } from './threads.js';

let server: SlackServer;

beforeEach(async () => {
  server = await SlackServer.start();
  server.largestPage = 7;
});

afterEach(() => server.stop());

/** Mulberry32: the same numbers for the same seed. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

describe('each event is delivered exactly once, in order', () => {
  test.each(Array.from({ length: 20 }, (_, seed) => seed))('whatever fails (seed %i)', async (seed) => {
    const random = seeded(seed);
    const pick = <T>(options: readonly T[]): T => options[Math.floor(random() * options.length)]!;
    const faults: Fault[] = [
      { kind: 'reset', stored: false },
      { kind: 'reset', stored: true },
      { kind: 'reset', stored: true, lateMs: 20 },
      { kind: 'hang', stored: false },
      { kind: 'hang', stored: true },
      { kind: 'status', status: 500, stored: true },
      { kind: 'status', status: 503, stored: false },
      { kind: 'error', error: 'internal_error', stored: true },
      { kind: 'error', error: 'service_unavailable', stored: false },
      { kind: 'proxy page' },
    ];
    server.fault = () => (random() < 0.2 ? pick(faults) : null);

    const kept = new KeptState();
    // After a kill, the record holds what was saved before, sometimes also what was about to be saved, and once nothing.
    const state = {
      load: kept.load,
      save: async (record: Parameters<KeptState['save']>[0]) => {
        const fate = random();
        if (fate < 0.08) throw new Error('killed before the save');
        await kept.save(record);
        if (fate < 0.16) throw new Error('killed after the save');
      },
    };
    const events = history(12);
    let opened = openThread(server, state, { callTimeoutMs: 60 });
    let kills = 0;
    for (let next = 0; next < events.length;) {
      try {
        if (random() < 0.3) await opened.thread.showStatus(status(next));
        await opened.thread.deliver(events[next]!);
        next += 1;
      } catch (error) {
        expect(String(error)).toContain('killed');
        kills += 1;
        opened.stop.abort(error);
        if (kills === 2) kept.text = null;
        // The caller's own cursor lags behind too.
        next = Math.max(0, next - Math.floor(random() * 4));
        opened = openThread(server, state, { callTimeoutMs: 60 });
      }
    }
    expect(opened.thread.dropped).toEqual([]);
    expect(toldIn(server.training)).toEqual(events.map(({ id }) => id));
  });
});

test('each event is delivered exactly once, in order, by a process that is killed 20 times', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-slack-'));
  const random = seeded(20);
  const events = history(150);
  const start = () => {
    const child = spawn(
      process.execPath,
      [
        '--import',
        fileURLToPath(new URL('../../support/preloads/typescript-register.mjs', import.meta.url)),
        fileURLToPath(new URL('thread-child.ts', import.meta.url)),
        folder,
        server.url,
        server.training.id,
      ],
      { env: { ...process.env, SLACK_BOT_TOKEN: server.token }, stdio: ['ignore', 'ignore', 'inherit'] },
    );
    return { child, exited: new Promise<number | null>((resolve) => child.once('exit', resolve)) };
  };
  try {
    // The kill comes at any moment: during the first calls, or while a message is sent.
    for (let kill = 0; kill < 20; kill++) {
      const calls = server.calls.length;
      const posts = server.callsOf('chat.postMessage').length + Math.floor(random() * 8);
      const { child, exited } = start();
      const reached = () => server.calls.length > calls && server.callsOf('chat.postMessage').length >= posts;
      await until(() => reached() || child.exitCode !== null, 'the process to call Slack');
      await sleep(random() * 15);
      expect(child.exitCode).toBeNull();
      child.kill('SIGKILL');
      await exited;
    }
    expect(toldIn(server.training).length).toBeGreaterThan(20);
    expect(await start().exited).toBe(0);
    expect(toldIn(server.training)).toEqual(events.map(({ id }) => id));
    expect(await readFile(join(folder, 'thread.json'), 'utf8')).toContain('"ended"');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
