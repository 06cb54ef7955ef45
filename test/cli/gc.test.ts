// Garbage collection of a real run: nothing that anybody needs is lost, whenever the collection dies, on both stores.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../src/activities/audit-run.js';
import { PolicyHolder } from '../../src/activities/policy-holder.js';
import { saveState, uploadCheckpoint } from '../../src/activities/save-state.js';
import { bestStepsOf, stepsText } from '../../src/cli/gc-command.js';
import { createStateLock } from '../../src/engine/native/state-lock.js';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import type { EvaluationFigure } from '../../src/report/evaluations.js';
import type { EpisodeRecord } from '../../src/spec/records.js';
import { canonicalText } from '../../src/store/canonical.js';
import { listCheckpoints } from '../../src/store/checkpoints.js';
import { collect, type CollectionOptions, planCollection } from '../../src/store/collection.js';
import { readStepEpisodes } from '../../src/store/episodes.js';
import {
  attemptFolder,
  checkpointFileKey,
  checkpointFolder,
  checkpointManifestKey,
  episodeKey,
  episodesFolder,
  foldedEpisodesKey,
  refKey,
  runKey,
  sequenceKey,
  updateKey,
} from '../../src/store/layout.js';
import type { ObjectStore } from '../../src/store/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { encodeRecord } from '../../src/store/record-codec.js';
import type { RecordTypes } from '../../src/store/record-schemas.js';
import { readRecord, requireRecord } from '../../src/store/records.js';
import { readRun, readState } from '../../src/store/run-records.js';
import { showRecord } from '../../src/store/show.js';
import { type Harness, run, startEnvironments, startHarness, tamper } from '../activities/fixture.js';
import { seededRandom } from '../chaos/random.js';
import { recordsOfAllKinds } from '../store/fixtures.js';
import { type S3Server, startS3Server } from '../support/s3-server.js';

const last = 6;
const grpoSteps = [3, 4, 5, 6];
const [slots, samples] = [2, 2];
const home = { project: 'tests', model: 'unit', run };

let environments: EnvironmentServer;
let harness: Harness;
let s3: S3Server;
const scratch = mkdtempSync(join(tmpdir(), 'longhaul-gc-'));
const episodesBefore = new Map<number, EpisodeRecord[]>();

beforeAll(async () => {
  [environments, s3] = await Promise.all([startEnvironments(), startS3Server()]);
  harness = await startHarness(environments);
  for (let step = 1; step <= last; step++) {
    await harness.advance(step);
    await harness.attempt('save', () => saveState(harness.node, { run, step, owner: 1 }));
    await harness.attempt('upload', () => uploadCheckpoint(harness.node, { run, step, owner: 1 }));
  }
  for (const step of grpoSteps) episodesBefore.set(step, await readStepEpisodes(harness.store, run, step));
}, 60_000);
afterAll(async () => {
  await harness.close();
  await environments.close();
  await s3.stop();
  rmSync(scratch, { recursive: true, force: true });
});

/** A copy of the run's store; times in the store are kept. */
async function copy(): Promise<{ store: ObjectStore; address: string }> {
  const folder = mkdtempSync(join(scratch, 'copy-'));
  cpSync(join(harness.folder, 'store'), folder, { recursive: true, preserveTimestamps: true });
  return { store: await openStore(`dir:${folder}`), address: `dir:${folder}` };
}

async function copyToBucket(prefix: string): Promise<ObjectStore> {
  const store = await openStore(s3.address(prefix));
  const keys: string[] = [];
  for await (const { key } of harness.store.list('')) keys.push(key);
  // What an attempt announced must not become younger than its episodes.
  keys.sort((a, b) => Number(b.includes('/attempts/')) - Number(a.includes('/attempts/')));
  for (const key of keys) await store.create(key, (await harness.store.get(key)) ?? new Uint8Array());
  return store;
}

const keepNewest: CollectionOptions = {
  retention: { keep_last: 1, keep_every: 0, keep_best: 0 },
  bestSteps: () => Promise.resolve([]),
};
const collectAll = (store: ObjectStore, during = (): Promise<void> => Promise.resolve()) =>
  collect(store, run, { ...keepNewest, graceMs: 0, by: 'test', wait: during });

async function keysOf(store: ObjectStore, prefix = ''): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of store.list(prefix)) keys.push(key);
  return keys;
}

/** The audit finds nothing, and every episode is there in every detail. */
async function expectNothingLost(store: ObjectStore): Promise<void> {
  const audit = await auditRun(store, run);
  expect(audit.violations).toEqual([]);
  expect(audit).toMatchObject({
    steps: last + 1,
    episodes: grpoSteps.length * slots * samples,
    finalState: await readState(harness.store, run, last),
  });
  for (const [step, before] of episodesBefore) {
    const found = await readStepEpisodes(store, run, step);
    expect(found.map((one) => canonicalText(one))).toEqual(before.map((one) => canonicalText(one)));
  }
}

async function expectCollected(store: ObjectStore): Promise<void> {
  expect(await listCheckpoints(store, await readRun(store, run))).toEqual([last]);
  for (let step = 1; step < last; step++)
    expect(await keysOf(store, checkpointFolder(home, step))).toEqual([]);
  for (const step of grpoSteps) {
    expect(await keysOf(store, episodesFolder(run, step))).toEqual([]);
    expect(await store.head(foldedEpisodesKey(run, step))).not.toBeNull();
  }
}

describe('a collection', () => {
  test('leaves a run whose audit, episodes, plans, batches and updates are what they were', async () => {
    const { store } = await copy();
    const before = await keysOf(store);
    expect(await collectAll(store)).toMatchObject({
      n: 1,
      checkpoints: [1, 2, 3, 4, 5],
      episodes: grpoSteps,
      spared: [],
      left: [],
    });
    await expectCollected(store);
    await expectNothingLost(store);
    const gone = new Set(before);
    for (const key of await keysOf(store)) gone.delete(key);
    expect([...gone].filter((key) => !/\/episodes\/|^checkpoints\//.test(key))).toEqual([]);
  });

  test('is told by the audit: what is gone, and that the rest suffices', async () => {
    const { store, address } = await copy();
    await collectAll(store);
    expect((await auditRun(store, run)).collected).toEqual({
      records: 1,
      checkpoints: [1, 2, 3, 4, 5],
      folded: grpoSteps.length,
    });
    const { stdout } = longhaul(['audit', run, '--store', address]);
    expect(stdout).toMatch(
      /collected +5 checkpoints; the episodes of 4 steps are in one file each \(collections: 1\)/,
    );
    expect(stdout).toMatch(/all steps can be replayed/);
  });

  test('leaves every state within reach: those without a checkpoint are computed from their batches', async () => {
    const { store } = await copy();
    await collectAll(store);
    const folder = mkdtempSync(join(scratch, 'node-'));
    const holder = new PolicyHolder({
      store,
      engine: harness.engine,
      lock: createStateLock(),
      folder,
      log: () => undefined,
    });
    await harness.engine.restart();
    await holder.withState(run, 4, () => Promise.resolve());
    expect((await harness.engine.held())?.state).toBe(await readState(harness.store, run, 4));
  });

  test('finds nothing to do a second time, and then writes no record', async () => {
    const { store } = await copy();
    await collectAll(store);
    const before = await keysOf(store);
    expect(await collectAll(store)).toMatchObject({ n: null, checkpoints: [], episodes: [] });
    expect(await keysOf(store)).toEqual(before);
  });

  test('keeps every checkpoint of a run without retention, and folds its episodes', async () => {
    const { store } = await copy();
    const done = await collect(store, run, {
      ...keepNewest,
      retention: null,
      graceMs: 0,
      by: 'test',
      wait: () => Promise.resolve(),
    });
    expect(done).toMatchObject({ checkpoints: [], episodes: grpoSteps });
    expect(await listCheckpoints(store, await readRun(store, run))).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test('beside which the run goes on ends in the state in which it would have ended', async () => {
    const other = await startHarness(environments);
    try {
      await other.advance(4);
      await other.attempt('save', () => saveState(other.node, { run, step: 4, owner: 1 }));
      await other.attempt('upload', () => uploadCheckpoint(other.node, { run, step: 4, owner: 1 }));
      const going = collectAll(other.store, async () => void (await other.advance(5)));
      expect(await going).toMatchObject({ checkpoints: [], episodes: [3, 4] });
      await other.engine.restart();
      await other.advance(last);
      expect(await readState(other.store, run, last)).toBe(await readState(harness.store, run, last));
      expect((await auditRun(other.store, run)).violations).toEqual([]);
    } finally {
      await other.close();
    }
  });

  test('that goes on beside an audit gives it nothing to complain of', async () => {
    for (let round = 0; round < 5; round++) {
      const { store } = await copy();
      const [audit] = await Promise.all([auditRun(store, run), collectAll(store)]);
      expect(audit.violations).toEqual([]);
      expect(audit.episodes).toBe(grpoSteps.length * slots * samples);
    }
  });

  test('deletes the manifest of a checkpoint first, in whatever order the store lists its files', async () => {
    const { store } = await copy();
    const deleted: string[] = [];
    const reversed: ObjectStore = {
      ...bound(store),
      list: async function* (prefix) {
        const found = [];
        for await (const info of store.list(prefix)) found.unshift(info);
        yield* found;
      },
      delete: (key) => {
        deleted.push(key);
        return store.delete(key);
      },
    };
    await collectAll(reversed);
    for (let step = 1; step < last; step++) {
      const files = deleted.filter((key) => key.startsWith(checkpointFolder(home, step)));
      expect(files[0]).toBe(checkpointManifestKey(home, step));
      expect(files).toContain(checkpointFileKey(home, step, 'state.safetensors'));
    }
  });

  test('touches no step that is not committed', async () => {
    const { store } = await copy();
    await store.delete(updateKey(run, last));
    await collectAll(store);
    expect(await keysOf(store, episodesFolder(run, last))).toHaveLength(slots * samples);
    expect(await store.head(foldedEpisodesKey(run, last))).toBeNull();
  });
});

describe('what others need', () => {
  const reference = { ...recordsOfAllKinds().ref, run, user: 'other', step: 3 };

  test('stays, where they said so before the collection', async () => {
    const { store } = await copy();
    await store.create(refKey(run, 'other'), await encodeRecord('ref', reference));
    expect((await collectAll(store)).checkpoints).toEqual([1, 2, 4, 5]);
    expect(await listCheckpoints(store, await readRun(store, run))).toEqual([3, last]);
  });

  test('is spared, where they said so within the grace', async () => {
    const { store } = await copy();
    const done = await collectAll(store, async () => {
      await store.create(refKey(run, 'other'), await encodeRecord('ref', reference));
    });
    expect(done).toMatchObject({ checkpoints: [1, 2, 4, 5], spared: [3] });
    await expectNothingLost(store);
  });

  test('stays for a run that continues this one, whether it left a reference or not', async () => {
    const { store } = await copy();
    const lineage = { run, step: 2, state: await readState(store, run, 2) };
    const fork = { ...(await readRun(store, run)), run: 'fork', name: 'fork', lineage };
    await store.create(runKey('fork'), await encodeRecord('run', fork));
    expect((await planCollection(store, run, keepNewest)).kept.get(2)).toEqual(['needed by fork']);
  });

  test('is a parent’s own matter: a collection of its fork names none of its checkpoints', async () => {
    const { store } = await copy();
    const lineage = { run, step: 2, state: await readState(store, run, 2) };
    const fork = { ...(await readRun(store, run)), run: 'fork', name: 'fork', lineage };
    await store.create(runKey('fork'), await encodeRecord('run', fork));
    for (const step of [3, 4]) {
      const manifest = await requireRecord(store, checkpointManifestKey(home, step), 'checkpoint');
      const key = checkpointManifestKey({ ...home, run: 'fork' }, step);
      await store.create(key, await encodeRecord('checkpoint', { ...manifest, run: 'fork' }));
    }
    expect(await listCheckpoints(store, fork)).toEqual([1, 2, 3, 4]);
    const { checkpoints, kept } = await planCollection(store, 'fork', keepNewest);
    expect({ checkpoints, kept: [...kept] }).toEqual({ checkpoints: [3], kept: [[4, ['newest']]] });
  });

  test('is not guessed: a reference that cannot be read stops the collection before it deletes anything', async () => {
    const { store } = await copy();
    await store.create(refKey(run, 'other'), Buffer.from('{"schema":"longhaul.ref/1"'));
    const before = await keysOf(store);
    await expect(collectAll(store)).rejects.toThrow(refKey(run, 'other'));
    expect(await keysOf(store)).toEqual(before);
  });
});

describe('a step whose records disagree is left as it is', () => {
  const single = episodeKey(run, 3, 0, 1);
  test.each<{ what: string; damage: (store: ObjectStore) => Promise<unknown>; problem: RegExp }>([
    {
      what: 'an episode that cannot be read',
      damage: (store) => tamper(store, single, () => 'no gzip'),
      problem: /00000\.001.*no whole gzip stream/,
    },
    {
      what: 'one that is missing',
      damage: (store) => store.delete(single),
      problem: /3 episodes, its plan has 4/,
    },
    {
      what: 'one with another outcome than its update',
      damage: async (store) => {
        const record = await requireRecord(store, single, 'episode');
        const other = { ...record, outcome: { status: 'graded', value: 0.125 } } as const;
        const bytes = await encodeRecord('episode', other);
        await tamper(store, single, () => bytes);
      },
      problem: /outcome of .*00000\.001.* is not the one in update\.json/,
    },
  ])('$what', async ({ damage, problem }) => {
    const { store } = await copy();
    await damage(store);
    const before = await keysOf(store, episodesFolder(run, 3));
    const done = await collectAll(store);
    expect(done.left).toEqual([{ step: 3, problem: expect.stringMatching(problem) as string }]);
    expect(done.episodes).toEqual([4, 5, 6]);
    expect(await keysOf(store, episodesFolder(run, 3))).toEqual(before);
    expect(await store.head(foldedEpisodesKey(run, 3))).toBeNull();
  });
});

describe('a folded step is read as an unfolded one', () => {
  test('by longhaul show, at the keys that its episodes had', async () => {
    const { store } = await copy();
    const key = episodeKey(run, 4, 1, 0);
    const figures = (text: string): string => text.slice(text.indexOf('task '));
    const before = await showRecord(store, key);
    await collectAll(store);
    expect(figures(await showRecord(store, key))).toBe(figures(before));
    expect(await showRecord(store, episodesFolder(run, 4))).toContain(key);
    expect(await showRecord(store, foldedEpisodesKey(run, 4))).toContain('4 episodes');
  });

  test('by longhaul transcripts', async () => {
    const { store, address } = await copy();
    const transcripts = (): string =>
      longhaul(['transcripts', run, '--step', '4', '--limit', '9', '--json', '--store', address]).stdout;
    const before = transcripts();
    expect(before.trim().split('\n')).toHaveLength(slots * samples);
    await collectAll(store);
    expect(transcripts()).toBe(before);
  });
});

describe('the audit of a folded step', () => {
  const file = foldedEpisodesKey(run, 3);
  const single = episodeKey(run, 3, 0, 0);

  async function folded(): Promise<ObjectStore> {
    const { store } = await copy();
    await collectAll(store);
    return store;
  }
  const violations = async (store: ObjectStore) => (await auditRun(store, run)).violations;

  test('finds a file that no collection has announced', async () => {
    const store = await folded();
    await store.delete(sequenceKey(`runs/${run}/gc/`, 1));
    expect(await violations(store)).toContainEqual(expect.objectContaining({ rule: 'R23', key: file }));
  });

  test('finds a file of a step that is not committed', async () => {
    const store = await folded();
    await store.delete(updateKey(run, last));
    expect(await violations(store)).toContainEqual(
      expect.objectContaining({ rule: 'R23', key: foldedEpisodesKey(run, last) }),
    );
  });

  test('finds a file that cannot be read', async () => {
    const store = await folded();
    await tamper(store, file, (bytes) => bytes.subarray(0, bytes.length - 20));
    expect(await violations(store)).toContainEqual(expect.objectContaining({ rule: 'R1', key: file }));
  });

  test('finds an episode that was made again after that, and says otherwise', async () => {
    const store = await folded();
    const record = episodesBefore.get(3)?.[0] as EpisodeRecord;
    const again = { ...record, observed: { ...record.observed, attempt: 9 } };
    await store.create(single, await encodeRecord('episode', again));
    expect(await violations(store)).toContainEqual(expect.objectContaining({ rule: 'R9', key: single }));
    expect((await collectAll(store)).left).toMatchObject([{ step: 3 }]);
    expect(await readRecord(store, single, 'episode')).not.toBeNull();
  });

  test('finds a start after the episode’s record was there, by the time that the file has kept', async () => {
    const store = await folded();
    const attempt = { ...recordsOfAllKinds().attempt, starts: [single] };
    await store.create(
      sequenceKey(attemptFolder(run, 3, 'collect', 'late'), 1),
      await encodeRecord('attempt', attempt),
    );
    expect(await violations(store)).toContainEqual(expect.objectContaining({ rule: 'R9', key: single }));
  });
});

describe('longhaul gc', () => {
  test('with --dry-run names what would go and why the rest stays, and changes nothing', async () => {
    const { store, address } = await copy();
    const before = await keysOf(store);
    const { stdout, status } = longhaul(['gc', run, '--dry-run', '--keep-last', '2', '--store', address]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/of steps 1–4 are deleted/);
    expect(stdout).toMatch(/stays: step 6 \(newest\); step 5 \(keep_last\)/);
    expect(stdout).toMatch(/episodes +of steps 3–6 go into one file each/);
    expect(await keysOf(store)).toEqual(before);
    const all = longhaul(['gc', run, '--dry-run', '--store', address]).stdout;
    expect(all).toMatch(/checkpoints +none is deleted\n/);
    expect(all).toMatch(/stays: step 6 \(newest\); steps 1–5 \(no retention is set: give --keep-last N\)\n/);
  });

  test('keeps what the spec’s retention says, where no flag says otherwise', async () => {
    const { store, address } = await copy();
    const retention = { keep_last: 1, keep_every: 3, keep_best: 0 };
    await tamper(store, runKey(run), (bytes) => {
      const record = JSON.parse(bytes.toString()) as RecordTypes['run'];
      return canonicalText({ ...record, spec: { ...record.spec, retention } });
    });
    const kept = (...flags: string[]) =>
      JSON.parse(
        longhaul(['gc', run, '--dry-run', '--json', ...flags, '--store', address]).stdout,
      ) as unknown;
    expect(kept()).toMatchObject({
      checkpoints: [1, 2, 4, 5],
      kept: { 3: ['keep_every'], 6: ['newest', 'keep_every'] },
    });
    expect(kept('--keep-every', '0')).toMatchObject({ checkpoints: [1, 2, 3, 4, 5] });
  });

  test('says what is wrong with a run, a grace or a number', async () => {
    const { address } = await copy();
    const stderr = (...args: string[]) => longhaul([...args, '--store', address]).stderr;
    expect(stderr('gc', 'none')).toMatch(/there is no run "none"/);
    expect(stderr('gc', run, '--grace', '-1')).toMatch(/whole number from 0 up/);
    expect(stderr('gc', run, '--keep-last', '0')).toMatch(/whole number from 1 up/);
  });

  test('killed at random moments, again and again, loses nothing, and the next one finishes', async () => {
    const { store, address } = await copy();
    const random = seededRandom(7);
    const args = ['gc', run, '--grace', '0', '--keep-last', '1', '--store', address];
    let kills = 0;
    while (longhaul(args, 1 + random.below(40)).signal === 'SIGKILL') {
      kills++;
      await expectNothingLost(store);
    }
    // Else the moments were not where the work is.
    expect(kills).toBeGreaterThanOrEqual(5);
    expect(longhaul(args).status).toBe(0);
    await expectCollected(store);
    await expectNothingLost(store);
  }, 60_000);
});

test('a collection in a bucket, cut off before random writes, loses nothing, and the next one finishes', async () => {
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
}, 120_000);

/** The same store, to spread. */
function bound(store: ObjectStore): ObjectStore {
  return {
    address: store.address,
    get: (key) => store.get(key),
    head: (key) => store.head(key),
    getToFile: (key, path, transfer) => store.getToFile(key, path, transfer),
    stream: (key) => store.stream(key),
    list: (prefix) => store.list(prefix),
    listFolder: (prefix) => store.listFolder(prefix),
    sweep: (olderThanMs) => store.sweep(olderThanMs),
    create: (key, bytes) => store.create(key, bytes),
    createFromFile: (key, path, transfer) => store.createFromFile(key, path, transfer),
    delete: (key) => store.delete(key),
  };
}

/** A store that is lost before write `writes` + 1. */
function diesAfter(store: ObjectStore, writes: number): ObjectStore {
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

describe('the best steps', () => {
  const figure = (step: number, suite: string, pass_at_1: number): EvaluationFigure => ({
    step,
    result: { ...recordsOfAllKinds().evaluation, suite, pass_at_1 },
  });

  test('are those of the suite that was played most, the newer one first among equals', () => {
    expect(
      bestStepsOf([
        figure(10, 'interval', 0.4),
        figure(20, 'interval', 0.9),
        figure(30, 'interval', 0.4),
        figure(40, 'interval', 0.5),
        figure(0, 'final', 0.1),
        figure(40, 'final', 1),
      ]),
    ).toEqual([20, 40, 30, 10]);
    expect(bestStepsOf([])).toEqual([]);
  });
});

/** The built command line; with `dieAtCall` it is killed in that call of its that changes the file system. */
function longhaul(args: readonly string[], dieAtCall?: number) {
  const preload = new URL('../support/die-at-call.mjs', import.meta.url).href;
  return spawnSync(
    process.execPath,
    [...(dieAtCall === undefined ? [] : ['--import', preload]), 'bin/longhaul', ...args],
    {
      encoding: 'utf8',
      timeout: 180_000,
      env: { ...process.env, ...(dieAtCall === undefined ? {} : { DIE_AT_CALL: String(dieAtCall) }) },
    },
  );
}

test.each([
  [[7], 'step 7'],
  [[3, 4, 5, 130], 'steps 3–5, 130'],
  [[1, 5, 6, 7, 8], 'steps 1, 5–8'],
  [[5, 10, 15, 20, 25, 27], 'steps 5–25 (every 5th), 27'],
  [[2, 4, 6], 'steps 2, 4, 6'],
  [[0, 22, 44, 66], 'steps 0–66 (every 22nd)'],
])('steps %j read "%s"', (steps, text) => {
  expect(stepsText(steps)).toBe(text);
});
