// The episodes of a step are folded into one file only if all its records agree. A folded step is read as before and audited as strictly.
import { describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import {
  attemptFolder,
  episodeKey,
  episodesFolder,
  foldedEpisodesKey,
  sequenceKey,
  updateKey,
} from '../../../src/store/record-keys.js';
import type { OpenedStore } from '../../../src/store/runs/episodes.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { readRecord, requireRecord } from '../../../src/store/records/records.js';
import { showRecord } from '../../../src/cli/inspect/show-command.js';
import { run, tamper } from '../../activities/fixture.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { longhaul } from '../../support/command-line.js';
import {
  collectAll,
  copy,
  episodesBefore,
  keysOf,
  last,
  samples,
  slots,
  useFinishedRun,
} from './gc-fixture.js';

useFinishedRun();

describe('a step whose records disagree is not folded', () => {
  const single = episodeKey(run, 3, 0, 1);
  test.each<{ what: string; damage: (store: ObjectStore) => Promise<unknown>; problem: RegExp }>([
    {
      what: 'an episode that cannot be read',
      damage: (store) => tamper(store, single, () => 'no gzip'),
      problem: /00000\.001.*not a complete gzip stream/,
    },
    {
      what: 'an episode that is missing',
      damage: (store) => store.delete(single),
      problem: /3 episodes, but its plan has 4/,
    },
    {
      what: 'an episode with another outcome than the update counts',
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

describe('a folded step is read like an unfolded one', () => {
  test('by longhaul show, at the keys of its episodes', async () => {
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
    const args = ['transcripts', run, '--step', '4', '--limit', '9', '--json', '--store', address];
    const { output: before } = await longhaul(args);
    expect(before.trim().split('\n')).toHaveLength(slots * samples);
    await collectAll(store);
    expect((await longhaul(args)).output).toBe(before);
  });
});

describe('the audit of a folded step', () => {
  const file = foldedEpisodesKey(run, 3);
  const single = episodeKey(run, 3, 0, 0);

  async function folded(): Promise<OpenedStore> {
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

  test('finds an episode that was written again later with another content', async () => {
    const store = await folded();
    const record = episodesBefore.get(3)?.[0] as EpisodeRecord;
    const again = { ...record, stop_reason: 'done' as const, metrics: { ...record.metrics, turns: 9 } };
    await store.create(single, await encodeRecord('episode', again));
    expect(await violations(store)).toContainEqual(expect.objectContaining({ rule: 'R9', key: single }));
    expect((await collectAll(store)).left).toMatchObject([{ step: 3 }]);
    expect(await readRecord(store, single, 'episode')).not.toBeNull();
  });

  test('finds, from the times in the file, that an episode was sampled again after its record existed', async () => {
    const store = await folded();
    const observed = { node: 'other', pid: 1, at: new Date().toISOString() };
    const attempt = {
      ...recordsOfAllKinds().attempt,
      ...{ schema: 'longhaul.attempt/2' as const, starts: [single], discarded: [single], observed },
    };
    await store.create(
      sequenceKey(attemptFolder(run, 3, 'collect', 'late'), 1),
      await encodeRecord('attempt', attempt),
    );
    expect(await violations(store)).toContainEqual(expect.objectContaining({ rule: 'R9', key: single }));
  });

  test('accepts a copy of the store in which every object has a new time', async () => {
    const { store } = await copy();
    await collectAll(store);
    for (const key of await keysOf(store)) await tamper(store, key, (bytes) => bytes);
    expect(await violations(store)).toEqual([]);
  });
});
