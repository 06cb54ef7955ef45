import { gunzipSync, gzipSync } from 'node:zlib';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { canonicalBytes, recordDigest } from '../../../src/store/records/canonical.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { checkRecord, decodeRecord, encodeRecord } from '../../../src/store/records/record-codec.js';
import { oldestVersions, schemaVersions, summedKinds } from '../../../src/spec/records/record-kinds.js';
import {
  adoptOrCreate,
  appendSequence,
  createFile,
  readRecord,
  readSequence,
  recordFunction,
} from '../../../src/store/records/records.js';
import { UnreadableRecord } from '../../../src/store/record-errors.js';
import { atOnceIn, bytesOf } from '../objects/conformance.js';
import { digestOf, recordKinds, recordsOfAllKinds } from '../fixtures.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const root = scratchFolder();
let store: ObjectStore;
let home = 0;
let key: string;
beforeAll(async () => {
  store = await openDirectoryStore(root);
});
beforeEach(() => {
  key = `t${++home}/record.json`;
});

const put = (value: unknown, compressed = false) =>
  store.create(key, compressed ? gzipSync(canonicalBytes(value)) : canonicalBytes(value));

describe.each(recordKinds)('a %s record', (kind) => {
  const record = () => recordsOfAllKinds()[kind] as unknown as Record<string, unknown>;
  const episode = kind === 'episode';

  it('is read as it was written', async () => {
    await store.create(key, await encodeRecord(kind, recordsOfAllKinds()[kind]));
    expect(await readRecord(store, key, kind)).toEqual(record());
  });

  const known = schemaVersions[kind];
  const oldest = oldestVersions[kind] ?? known;
  const version = (n: number): string => `longhaul.${kind}/${n}`;

  it('of a newer schema is refused, and the error names the key and both versions', async () => {
    await put({ ...record(), schema: version(known + 1) }, episode);
    await expect(readRecord(store, key, kind)).rejects.toMatchObject({
      name: 'NewerSchema',
      message: expect.stringMatching(
        new RegExp(`${key}.*${version(known + 1)}.*${version(known)}`),
      ) as string,
    });
  });

  if (oldest > 1)
    it('of an older schema is refused, and the error says what to do with its run', async () => {
      await put({ ...record(), schema: version(oldest - 1) }, episode);
      await expect(readRecord(store, key, kind)).rejects.toMatchObject({
        name: 'OlderSchema',
        message: expect.stringMatching(
          new RegExp(
            `${key}.*${version(oldest - 1)}: an earlier version.*Finish it with the version that began it`,
          ),
        ) as string,
      });
    });

  it('with an unknown or a missing member, of another kind or without a schema is unreadable, and the error names the key', async () => {
    const [first] = Object.keys(record()).filter((name) => name !== 'schema');
    const broken = [
      { ...record(), surprise: 1 },
      Object.fromEntries(Object.entries(record()).filter(([name]) => name !== first)),
      { ...record(), schema: 'longhaul.other/1' },
      { ...record(), schema: undefined },
      [],
      null,
      'text',
    ];
    for (const value of broken) {
      const bytes = bytesOf(JSON.stringify(value));
      const error: unknown = await decodeRecord(key, kind, episode ? gzipSync(bytes) : bytes).catch(
        (e: unknown) => e,
      );
      expect(error).toMatchObject({ name: 'UnreadableRecord', key });
    }
  });

  it('that was cut off or overwritten is unreadable, and the error names the key', async () => {
    const bytes = await encodeRecord(kind, recordsOfAllKinds()[kind]);
    for (const broken of [bytes.subarray(0, bytes.length / 2), bytesOf('\x00noise'), new Uint8Array()]) {
      await expect(decodeRecord(key, kind, broken)).rejects.toMatchObject({ name: 'UnreadableRecord', key });
    }
  });

  if (summedKinds.has(kind))
    it('with any bit flipped is refused, or is still read as the same record', async () => {
      const bytes = await encodeRecord(kind, {
        ...recordsOfAllKinds()[kind],
        schema: version(known),
      } as never);
      const whole = await decodeRecord(key, kind, bytes);
      for (let bit = 0; bit < 8 * bytes.length; bit++) {
        const flipped = Uint8Array.from(bytes);
        flipped[bit >> 3] = (flipped[bit >> 3] as number) ^ (1 << (bit & 7));
        const read: unknown = await decodeRecord(key, kind, flipped).catch((error: Error) => error);
        if (read instanceof Error) expect(read).toMatchObject({ key });
        else expect(read).toEqual(whole);
      }
    });

  it('that does not fit its schema is never written', async () => {
    const invalid = { ...record(), surprise: 1 } as never;
    await expect(adoptOrCreate(store, key, kind, invalid)).rejects.toThrow(TypeError);
    expect(await store.head(key)).toBeNull();
  });
});

describe('an evaluation', () => {
  const of = (pass_at_1: number | null, graded: number, own: number | null = pass_at_1) => {
    const { evaluation } = recordsOfAllKinds();
    const figures = { ...evaluation.environments.tracker, pass_at_1: own, graded, unknown: 4 - graded };
    return { ...evaluation, pass_at_1, graded, environments: { tracker: figures } };
  };

  it('must have a pass rate if an episode was graded, and must not have one otherwise', () => {
    expect(checkRecord(key, 'evaluation', of(null, 0))).toEqual(of(null, 0));
    for (const contradiction of [of(0, 0), of(null, 4), of(0.5, 4, null)])
      expect(() => checkRecord(key, 'evaluation', contradiction)).toThrow(UnreadableRecord);
  });
});

describe('bytes', () => {
  it('of an episode are gzip of canonical JSON, and equal on every machine', async () => {
    const { episode } = recordsOfAllKinds();
    const bytes = await encodeRecord('episode', episode);
    expect(gunzipSync(bytes)).toEqual(Buffer.from(canonicalBytes(episode)));
    expect([...bytes.subarray(4, 8), bytes[9]]).toEqual([0, 0, 0, 0, 255]);
    expect(await encodeRecord('episode', episode)).toEqual(bytes);
  });

  it('of the member observed do not enter the digest', () => {
    const { episode } = recordsOfAllKinds();
    const later = { ...episode, observed: { ...episode.observed, seconds: 99 } };
    expect(recordDigest(later)).toBe(recordDigest(episode));
    expect(recordDigest({ ...episode, slot: 1 })).not.toBe(recordDigest(episode));
  });

  it.each([
    [
      'turns that overlap',
      {
        turns: [
          { policy_step: 0, start: 3, end: 5 },
          { policy_step: 0, start: 4, end: 5 },
        ],
      },
    ],
    ['a turn past the end', { turns: [{ policy_step: 0, start: 3, end: 99 }] }],
    ['log-probs that do not match the turns', { logprobs: [-1] }],
    ['a prompt longer than the transcript', { prompt_length: 99 }],
    ['a negative token', { tokens: [1, 2, 3, 4, 5, 6, -7] }],
  ])('of an episode with %s are refused', async (_, change) => {
    await put({ ...recordsOfAllKinds().episode, ...change }, true);
    await expect(readRecord(store, key, 'episode')).rejects.toMatchObject({ name: 'UnreadableRecord' });
  });
});

// How records of each kind are written: choices, functions and sequences.
describe('a choice', () => {
  it('is the first author’s, even if the second author chose something else', async () => {
    const { plan } = recordsOfAllKinds();
    expect(await adoptOrCreate(store, key, 'plan', plan)).toEqual({ record: plan, adopted: false });
    const other = { ...plan, owner: 2 };
    expect(await adoptOrCreate(store, key, 'plan', other)).toEqual({ record: plan, adopted: true });
    expect(await readRecord(store, key, 'plan')).toEqual(plan);
  });

  it('is not adopted if it cannot be read', async () => {
    await store.create(key, bytesOf('{"schema":"longhaul.plan/4"'));
    await expect(adoptOrCreate(store, key, 'plan', recordsOfAllKinds().plan)).rejects.toMatchObject({
      name: 'UnreadableRecord',
    });
  });
});

describe('a function', () => {
  it('with the same identity is adopted as stored, even if the member observed differs', async () => {
    const { update } = recordsOfAllKinds();
    await recordFunction(store, key, 'update', update);
    const again = { ...update, observed: { ...update.observed, metrics: { loss: 0.2 } } };
    expect(await recordFunction(store, key, 'update', again)).toEqual({ record: update, adopted: true });
  });

  it('with another identity throws Diverged with both identities and the path, and changes nothing', async () => {
    const { update } = recordsOfAllKinds();
    await recordFunction(store, key, 'update', update);
    const other = { ...update, identity: { ...update.identity, state: digestOf('e') } };
    await expect(recordFunction(store, key, 'update', other)).rejects.toMatchObject({
      name: 'Diverged',
      message: expect.stringMatching(/state \(stored "bbb.*computed "eee/) as string,
      evidence: { key, stored: update.identity, computed: other.identity },
    });
    expect(await readRecord(store, key, 'update')).toEqual(update);
  });

  it('that is a file is compared byte for byte', async () => {
    expect(await createFile(store, key, bytesOf('batch'))).toMatchObject({ adopted: false, size: 5 });
    expect(await createFile(store, key, bytesOf('batch'))).toMatchObject({ adopted: true });
    await expect(createFile(store, key, bytesOf('other'))).rejects.toMatchObject({ name: 'Diverged' });
  });
});

describe('a sequence', () => {
  const folder = () => `t${home}/control/`;
  const control = (n: number, id: string) => ({ ...recordsOfAllKinds().control, n, update_id: id });

  it('gives each author a different number, without gaps', async () => {
    const ids = Array.from({ length: 12 }, (_, i) => `u${i}`);
    const written = await Promise.all(
      ids.map((id) => appendSequence(store, folder(), 'control', (n) => control(n, id))),
    );
    expect(written.map(({ n }) => n).sort((a, b) => a - b)).toEqual(ids.map((_, i) => i + 1));
    const records = await readSequence(store, folder(), 'control');
    expect(records.map(({ n }) => n)).toEqual(ids.map((_, i) => i + 1));
    expect(records.map(({ update_id }) => update_id).sort()).toEqual([...ids].sort());
  });

  it('shows the author that loses a race all stored records before that author decides again', async () => {
    await appendSequence(store, folder(), 'control', (n) => control(n, 'first'));
    const seen: number[] = [];
    const record = await appendSequence(store, folder(), 'control', async (n, existing) => {
      seen.push(existing.length);
      if (seen.length === 1)
        await appendSequence(store, folder(), 'control', (m) => ({
          ...control(m, 'known'),
          observed: { at: '2026-01-02T03:04:06.000Z' },
        }));
      return existing.find(({ update_id }) => update_id === 'known') ?? control(n, 'known');
    });
    expect(seen).toEqual([1, 2]);
    expect(record).toMatchObject({ n: 2, update_id: 'known' });
    expect(await readSequence(store, folder(), 'control')).toHaveLength(2);
  });

  it('is in numerical order, also after 9, and is read a few records at a time', async () => {
    for (let n = 1; n <= 40; n++) {
      await store.create(`${folder()}${n}.json`, await encodeRecord('control', control(n, `u${n}`)));
    }
    const { watched, most } = atOnceIn(store);
    expect((await readSequence(watched, folder(), 'control')).at(-1)?.n).toBe(40);
    expect(most()).toBeGreaterThan(1);
    expect(most()).toBeLessThanOrEqual(32);
  });

  it('with a gap or a wrong number is unreadable', async () => {
    await store.create(`${folder()}2.json`, await encodeRecord('control', control(2, 'u')));
    await expect(readSequence(store, folder(), 'control')).rejects.toThrow(/1\.json.*missing/);
    await store.create(`${folder()}1.json`, await encodeRecord('control', control(7, 'u')));
    await expect(readSequence(store, folder(), 'control')).rejects.toThrow(/says n = 7/);
  });
});
