// Tests the search for secrets in everything that a run has written, and for open sessions on its environment server.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeEach, expect, test } from 'vitest';
import { type ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { startEnvironments } from '../../activities/fixture.js';
import { openRawSocket } from '../../support/servers/raw-socket.js';
import { gradingTokenOf, leakedSessions, placesWithSecrets } from './leftovers.js';
import { ownFolder } from '../../support/scratch-folder.js';

let folder: string;
let store: ObjectStore;
beforeEach(async () => {
  folder = ownFolder();
  mkdirSync(join(folder, 'logs'));
  writeFileSync(join(folder, 'grading-token'), 'the token of the stack\n');
  store = await openStore(`dir:${join(folder, 'store')}`);
});

test("a stack's grading token is found everywhere except in the file that contained it from the start", async () => {
  const { texts, givenIn } = gradingTokenOf(folder);
  expect(texts).toEqual(['the token of the stack']);
  expect(await placesWithSecrets({ folder, store, givenIn }, texts)).toEqual([]);
  writeFileSync(join(folder, 'logs', 'node.log'), 'sent the token of the stack');
  expect(await placesWithSecrets({ folder, store, givenIn }, texts)).toEqual(['logs/node.log']);
});

test('a search without a secret is refused, because it would never find anything', async () => {
  for (const secrets of [[], ['']])
    await expect(placesWithSecrets({ folder, store, givenIn: [] }, secrets)).rejects.toThrow(
      'there is no secret to search for',
    );
});

test('a secret is found in compressed files and objects, in names, in keys, and in base64', async () => {
  const secret = 'a-secret-of-the-run';
  const apart = mkdtempSync(join(tmpdir(), 'longhaul-leftovers-store-'));
  try {
    const elsewhere = await openStore(`dir:${apart}`);
    const inBase64 = Buffer.from(secret).toString('base64');
    writeFileSync(join(folder, 'logs', 'old.log.gz'), gzipSync(`sent ${secret}`));
    writeFileSync(join(folder, 'logs', `${secret}.log`), '');
    writeFileSync(join(folder, 'logs', 'torn.gz'), `no gzip, but ${inBase64}`);
    writeFileSync(join(folder, 'logs', 'sound.log'), 'a-secret-of-another-run');
    await elsewhere.create('runs/x/episode.json.gz', gzipSync(`{"said":"${secret}"}`));
    await elsewhere.create(`runs/x/${secret}.json`, Buffer.from('{}'));
    await elsewhere.create('runs/x/sound.json', Buffer.from('{}'));
    const places = await placesWithSecrets({ folder, store: elsewhere, givenIn: [] }, [secret]);
    expect(places.sort()).toEqual([
      `logs/${secret}.log`,
      'logs/old.log.gz',
      'logs/torn.gz',
      `runs/x/${secret}.json`,
      'runs/x/episode.json.gz',
    ]);
  } finally {
    rmSync(apart, { recursive: true, force: true });
  }
});

test('an open session is counted until it has ended, with or without a socket', async () => {
  const server = await startEnvironments();
  try {
    expect(await leakedSessions(server.url, 0)).toBe(0);
    const { socket, closed } = await openRawSocket(server.url, '/ws?resumable=true');
    expect(await leakedSessions(server.url, 0)).toBe(1);
    const ended = leakedSessions(server.url, 10_000);
    socket.close();
    await closed;
    expect(await ended).toBe(0);
  } finally {
    await server.close();
  }
});
