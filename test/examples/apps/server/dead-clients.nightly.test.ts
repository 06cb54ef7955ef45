// Dead clients keep no places: a server with 8 places, and 50 client processes that are killed in the middle of their episodes.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { generateTasks } from '../../../../examples/apps/generate.js';
import { appNames } from '../../../../examples/apps/registry.js';
import { createOpenEnvBackend } from '../../../../src/environments/openenv/openenv-backend.js';
import type { SessionCounts } from '../../../../examples/apps/server/sessions.js';
import {
  startEnvironmentProcess,
  testToken,
  type EnvironmentProcess,
} from '../../../support/servers/environment-process.js';
import { openRawSocket } from '../../../support/servers/raw-socket.js';
import { until } from '../../../support/until.js';

const places = 8;
const kills = 50;
/** Together these clients take all places. */
const clientsAtOnce = 4;
const resumeTimeoutS = 2;

const cleanup: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const clean of cleanup.splice(0).reverse()) await clean();
});

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

/** A client process with open episodes, in the middle of calls. With journals, it reports how many episodes it has continued. */
async function startClient(
  { url }: EnvironmentProcess,
  journals?: string,
): Promise<ChildProcess & { said?: string }> {
  const script = path(`../../support/${journals === undefined ? 'episode' : 'journal'}-client.ts`);
  const register = path('../../support/preloads/typescript-register.mjs');
  const each = String(places / clientsAtOnce);
  const args = ['--import', register, script, url, testToken, each, ...(journals ? [journals] : [])];
  const child: ChildProcess & { said?: string } = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  cleanup.push(() => kill(child));
  let errors = '';
  child.stderr!.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const exited = once(child, 'exit').then(([code]) => {
    throw new Error(`the client exited with ${code}: ${errors}`);
  });
  exited.catch(() => undefined);
  const [said] = (await Promise.race([once(child.stdout!, 'data'), exited])) as [Buffer];
  child.said = said.toString();
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
}

async function counts({ url }: EnvironmentProcess): Promise<SessionCounts> {
  return (await (await fetch(`${url}/x/sessions`)).json()) as SessionCounts;
}

/** Kills `kills` clients, one after the other in each lane; returns how many episodes were continued. */
async function killClients(server: EnvironmentProcess, journals?: string): Promise<number> {
  let [started, attached] = [0, 0];
  await Promise.all(
    Array.from({ length: clientsAtOnce }, async (_, lane) => {
      while (started < kills) {
        const number = started++;
        const client = await startClient(server, journals && join(journals, String(lane)));
        attached += Number(client.said) || 0;
        // Each client dies at a different point of its calls.
        await delay(number % 7);
        await kill(client);
      }
    }),
  );
  expect(started).toBe(kills);
  return attached;
}

/** Expects that new sessions get all places at the same moment: no socket is refused and tries again. */
async function expectAllPlaces(server: EnvironmentProcess): Promise<void> {
  const sockets = await Promise.all(
    Array.from({ length: places }, () => openRawSocket(server.url, '/ws?resumable=true')),
  );
  for (const socket of sockets) expect((await socket.ask({ type: 'state' })).type).toBe('state');
  expect(await counts(server)).toEqual({
    max_sessions: places,
    sessions: places,
    attached: places,
    leaked: 0,
  });
  for (const { socket } of sockets) socket.close();
  await until(async () => (await counts(server)).sessions === 0, 'every session to end', 10_000);
}

const lastDeaths = (server: EnvironmentProcess): Promise<SessionCounts> =>
  until(async () => {
    const now = await counts(server);
    return now.attached === 0 ? now : null;
  }, 'the server to see the last deaths');

describe('a server of 8 places', () => {
  it('gives all places to 8 new sessions after 50 clients were killed, and keeps no place for the dead clients', async () => {
    const args = ['--max-sessions', String(places), '--resume-timeout', String(resumeTimeoutS)];
    const server = await startEnvironmentProcess(args);
    cleanup.push(() => server.kill('SIGKILL'));
    await killClients(server);
    expect((await lastDeaths(server)).sessions).toBeGreaterThan(0);
    await expectAllPlaces(server);

    const backend = createOpenEnvBackend({ url: server.url, gradingToken: testToken, maxSessions: places });
    const tasks = generateTasks({ apps: [...appNames], seed: 4, train_tasks: places, held_out_tasks: 0 });
    const { signal } = new AbortController();
    const episodes = await Promise.all(
      tasks.map((task, seed) => backend.open(task, { seed, episodeId: `f${seed}`, tryNumber: 0 }, signal)),
    );
    await Promise.all(episodes.map((episode) => episode.close()));
    await backend.close();
    await until(async () => (await counts(server)).sessions === 0, 'every session to end', 10_000);
    expect((await counts(server)).leaked).toBe(0);
  });

  it('also gives all places to new sessions if each client continued the episodes that the client before it had left', async () => {
    const journals = mkdtempSync(join(tmpdir(), 'longhaul-dead-clients-'));
    cleanup.push(() => rmSync(journals, { recursive: true }));
    // This time-out is long, so a session that no client continues would still be there at the end.
    const server = await startEnvironmentProcess([
      '--max-sessions',
      String(places),
      '--resume-timeout',
      '60',
    ]);
    cleanup.push(() => server.kill('SIGKILL'));
    const attached = await killClients(server, journals);
    console.log(`${attached} episodes went on in their worlds`);
    // Each client except the first in each lane continues the episodes that it finds; a few had just ended when their client was killed.
    expect(attached).toBeGreaterThan((kills - clientsAtOnce) * (places / clientsAtOnce) * 0.8);
    expect((await lastDeaths(server)).sessions).toBe(places);
    await expectAllPlaces(server);
  });

  it('ends the sessions of dead clients even if nobody needs their places', async () => {
    const args = ['--max-sessions', String(places), '--resume-timeout', String(resumeTimeoutS)];
    const server = await startEnvironmentProcess(args);
    cleanup.push(() => server.kill('SIGKILL'));
    const client = await startClient(server);
    await kill(client);
    expect((await counts(server)).sessions).toBe(places / clientsAtOnce);
    await until(
      async () => (await counts(server)).sessions === 0,
      'the sessions to end',
      4 * resumeTimeoutS * 1000,
    );
  });
});
