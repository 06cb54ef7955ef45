import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDirectoryStore } from '../../src/store/directory-store.js';
import { evaluationEpisodeKey } from '../../src/store/layout.js';
import type { ObjectStore } from '../../src/store/object-store.js';
import { adoptOrCreate } from '../../src/store/records.js';
import { compareStates } from '../../src/sweeps/comparison.js';
import { readPlayed } from '../../src/sweeps/read-played.js';
import { digestOf, recordsOfAllKinds } from '../store/fixtures.js';
import { madeUpSuite } from './made-up.js';

let folder: string;
let store: ObjectStore;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'longhaul-played-'));
  store = await openDirectoryStore(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const suite = madeUpSuite('s', ['tracker'], 3, 2);

async function play(state: string, slot: number, sample: number, change: object = {}): Promise<void> {
  const { task_key, env_key } = suite.record.tasks[slot]!;
  const record = {
    ...recordsOfAllKinds().episode,
    plan: suite.digest,
    state,
    slot,
    sample,
    task_key,
    env_key,
  };
  await adoptOrCreate(store, evaluationEpisodeKey(state, suite.digest, slot, sample), 'episode', {
    ...record,
    ...change,
  });
}

test('what is in the store is counted, and the rest is not played yet', async () => {
  const state = digestOf('a');
  await play(state, 0, 0);
  await play(state, 0, 1, { outcome: { status: 'graded', value: 0 } });
  await play(state, 2, 1, { outcome: { status: 'unknown', reason: 'open_failed', failures: 3 } });
  const played = await readPlayed(store, suite, { run: 'a', step: 4, state });
  expect(played).toMatchObject({ run: 'a', step: 4, state });
  expect(compareStates(suite, [played], null).states[0]?.all).toMatchObject({
    episodes: 3,
    graded: 2,
    unknown: 1,
    missing: 3,
    pass_at_1: 0.5,
  });
});

test('an episode of another place is refused by its key', async () => {
  const state = digestOf('b');
  await play(state, 1, 0, { slot: 2 });
  await expect(readPlayed(store, suite, { run: 'a', step: 4, state })).rejects.toThrow(
    /00001\.000\.json\.gz is unreadable: it says slot 2, sample 0/,
  );
});
