// Readers find episodes at their keys, folded or not, and a folded record wins over a single one, for steps and evaluations (R23).
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import {
  readEpisodesIn,
  readStepEpisodes,
  withFoldedEvaluations,
  withFoldedSteps,
} from '../../../src/store/runs/episodes.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { planKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { readRecord } from '../../../src/store/records/records.js';
import {
  encodeFolded,
  type EpisodesPlace,
  foldedKeyOf,
  singleKeyOf,
  singlesFolderOf,
} from '../../../src/store/runs/folded-episodes.js';
import { digestOf, recordsOfAllKinds } from '../fixtures.js';
import { scratchFolder } from '../../support/scratch-folder.js';
import { overlaid } from '../overlaid-store.js';

const scratch = scratchFolder();

const recordedAt = new Date('2026-01-02T03:04:05.000Z');
const rollouts = [0, 1, 2].map((sample) => ({ slot: 0, sample }));
const step: EpisodesPlace = { run: 'tiny', step: 1 };
const evaluation: EpisodesPlace = { state: digestOf('a'), suite: digestOf('5') };

describe.each([
  ['a step', step, withFoldedSteps],
  ['an evaluation', evaluation, withFoldedEvaluations],
])('the view of the episodes of %s', (_, place, withFolded) => {
  let count = 0;
  let raw: ObjectStore;
  beforeEach(
    async () => void (raw = await openDirectoryStore(join(scratch, `${'run' in place}-${++count}`))),
  );

  const folder = singlesFolderOf(place);
  const key = (sample: number): string => singleKeyOf(place, { slot: 0, sample });
  const episode = (sample: number, attempt: number): EpisodeRecord => {
    const { episode: one } = recordsOfAllKinds();
    return { ...one, slot: 0, sample, observed: { ...one.observed, attempt } };
  };
  const writeSingle = async (sample: number, attempt: number): Promise<void> =>
    void (await raw.create(key(sample), await encodeRecord('episode', episode(sample, attempt))));
  async function fold(): Promise<void> {
    const records = rollouts.map(({ sample }) => ({ record: episode(sample, 1), recordedAt }));
    await raw.create(foldedKeyOf(place), (await encodeFolded(place, records)) as Uint8Array);
    for (const { sample } of rollouts) await raw.delete(key(sample));
  }
  const attemptsIn = (records: (EpisodeRecord | null)[]): (number | undefined)[] =>
    records.map((record) => record?.observed.attempt);

  it('reads single records', async () => {
    await writeSingle(0, 2);
    const view = withFolded(raw);
    expect(await view.listFolder(folder)).toEqual([key(0).slice(folder.length)]);
    expect(attemptsIn(await readEpisodesIn(view, folder))).toEqual([2]);
    expect(await view.get(key(1))).toBeNull();
    expect(await view.head(key(1))).toBeNull();
    expect(await view.create(key(0), Buffer.from('another'))).toBe('exists');
  });

  it('reads a folded record even if a single record of the same episode exists', async () => {
    await fold();
    await writeSingle(1, 2);
    const view = withFolded(raw);
    expect(await view.listFolder(folder)).toEqual(
      rollouts.map(({ sample }) => key(sample).slice(folder.length)),
    );
    expect(attemptsIn(await readEpisodesIn(view, folder))).toEqual([1, 1, 1]);
    expect((await view.head(key(1)))?.modified).toEqual(recordedAt);
    const listed: [string, Date][] = [];
    for await (const info of view.list(folder)) listed.push([info.key, info.modified]);
    expect(listed).toEqual(rollouts.map(({ sample }) => [key(sample), recordedAt]));
    if ('run' in place)
      expect(attemptsIn(await readStepEpisodes(raw, place.run, place.step))).toEqual([1, 1, 1]);
  });

  it('deletes its own single record if the episodes were folded while it wrote', async () => {
    await writeSingle(0, 1);
    const stopped = overlaid(raw, {
      create: async (...args) => {
        await fold();
        return raw.create(...args);
      },
    });
    const view = withFolded(stopped);
    expect(await view.create(key(2), await encodeRecord('episode', episode(2, 2)))).toBe('exists');
    expect(await raw.listFolder(folder)).toEqual([]);
    expect(attemptsIn([await readRecord(view, key(2), 'episode')])).toEqual([1]);
  });

  it('does not change other keys, nor keys that the folded file lacks', async () => {
    await fold();
    const view = withFolded(raw);
    for (const other of [planKey('tiny', 1), `${key(0)}.r1`]) {
      expect(await view.create(other, Buffer.from('x'))).toBe('created');
      expect(Buffer.from((await view.get(other)) ?? []).toString()).toBe('x');
    }
  });

  it('reads the folded file once for all callers that ask at the same time', async () => {
    await fold();
    let looks = 0;
    const counting = overlaid(raw, {
      get: (asked) => {
        looks += Number(asked === foldedKeyOf(place));
        return raw.get(asked);
      },
    });
    const view = withFolded(counting);
    const read = await Promise.all(rollouts.map(({ sample }) => readRecord(view, key(sample), 'episode')));
    expect(attemptsIn(read)).toEqual([1, 1, 1]);
    expect(looks).toBe(1);
  });

  it('does not share a read of the folded file that began before a caller missed its single record', async () => {
    for (const { sample } of rollouts) await writeSingle(sample, 1);
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    let looks = 0;
    const slow = overlaid(raw, {
      get: async (asked) => {
        const bytes = await raw.get(asked);
        if (asked === foldedKeyOf(place) && ++looks === 1) await held;
        return bytes;
      },
    });
    const view = withFolded(slow);
    const early = view.head(key(0));
    while (looks === 0) await new Promise((resolve) => setImmediate(resolve));
    await fold();
    const late = Promise.all(rollouts.map(({ sample }) => readRecord(view, key(sample), 'episode')));
    await new Promise((resolve) => setTimeout(resolve, 50));
    release();
    expect(await early).not.toBeNull();
    expect(attemptsIn(await late)).toEqual([1, 1, 1]);
    expect(looks).toBe(2);
  });
});
