// A collection that is killed, or that loses its bucket between two writes, loses nothing that is needed, however often it happens.
import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { OpenedStore } from '../../../src/store/runs/episodes.js';
import { openStore } from '../../../src/store/open-store.js';
import { run } from '../../activities/fixture.js';
import { seededRandom } from '../../chaos/random.js';
import { longhaul } from '../../support/command-line.js';
import { type S3Server, startS3Server } from '../../support/servers/s3-server.js';
import {
  bound,
  collectAll,
  copy,
  expectCollected,
  expectNothingLost,
  harness,
  useFinishedRun,
} from './gc-fixture.js';

let s3: S3Server;

beforeAll(async () => {
  s3 = await startS3Server();
});
afterAll(() => s3.stop());
useFinishedRun();

test('a collection that is killed again and again at random moments loses nothing, and the next collection finishes', async () => {
  const { store, address } = await copy();
  const random = seededRandom(7);
  const args = ['gc', run, '--grace', '0', '--keep-last', '1', '--store', address];
  let kills = 0;
  while (killedInCall(args, 1 + random.below(40)) === 'SIGKILL') {
    kills++;
    await expectNothingLost(store);
  }
  // With fewer kills, the random moments would have missed the collection's work.
  expect(kills).toBeGreaterThanOrEqual(5);
  expect((await longhaul(args)).code).toBe(0);
  await expectCollected(store);
  await expectNothingLost(store);
});

test('a collection that loses its bucket before random writes loses nothing, and the next collection finishes', async () => {
  const store = await copyToBucket('cut-off');
  const random = seededRandom(3);
  let cuts = 0;
  for (;;) {
    const cut = await collectAll(diesAfter(store, random.below(12))).catch((error: Error) => error);
    await expectNothingLost(store);
    if (!(cut instanceof Error)) break;
    expect(cut.message).toBe('killed');
    cuts++;
  }
  expect(cuts).toBeGreaterThanOrEqual(4);
  await expectCollected(store);
});

async function copyToBucket(prefix: string): Promise<OpenedStore> {
  const store = await openStore(s3.address(prefix));
  const keys: string[] = [];
  for await (const { key } of harness.store.list('')) keys.push(key);
  // Copy attempt records first: they must not be younger than the episodes that they announce.
  keys.sort((a, b) => Number(b.includes('/attempts/')) - Number(a.includes('/attempts/')));
  for (const key of keys) await store.create(key, (await harness.store.get(key)) ?? new Uint8Array());
  return store;
}

/**
 * Runs the built command line and kills it in its `call`-th call that changes the file system. The command ends by itself if it makes fewer
 * calls.
 */
function killedInCall(args: readonly string[], call: number): NodeJS.Signals | null {
  const preload = new URL('../../support/preloads/die-at-call.mjs', import.meta.url).href;
  const env = { ...process.env, DIE_AT_CALL: String(call) };
  return spawnSync(process.execPath, ['--import', preload, 'bin/longhaul', ...args], {
    timeout: 180_000,
    env,
  }).signal;
}

/** A store that fails from write `writes` + 1 on. */
function diesAfter(store: OpenedStore, writes: number): OpenedStore {
  let left = writes;
  const spend = (): void => {
    if (left-- <= 0) throw new Error('killed');
  };
  return {
    ...bound(store),
    create: async (key, bytes) => (spend(), store.create(key, bytes)),
    createFromFile: async (key, path, transfer) => (spend(), store.createFromFile(key, path, transfer)),
    delete: async (key) => (spend(), store.delete(key)),
  };
}
