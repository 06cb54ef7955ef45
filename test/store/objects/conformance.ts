// The conformance suite of the store: each backend must pass it.
import { createHash, randomBytes } from 'node:crypto';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { probeStore } from '../../../src/store/open-store.js';
import { scratchFolder } from '../../support/scratch-folder.js';
import { keysOf, overlaid } from '../overlaid-store.js';

export const bytesOf = (text: string) => new TextEncoder().encode(text);

/** Wraps a store; `most` returns the largest number of reads that ran at the same time. */
export function atOnceIn(store: ObjectStore): { watched: ObjectStore; most: () => number } {
  let [now, most] = [0, 0];
  const counted = async <T>(read: () => Promise<T>): Promise<T> => {
    most = Math.max(most, ++now);
    return read().finally(() => (now -= 1));
  };
  const watched = overlaid(store, {
    get: (key) => counted(() => store.get(key)),
    head: (key) => counted(() => store.head(key)),
  });
  return { watched, most: () => most };
}

export function conformance(open: () => Promise<ObjectStore>): void {
  let store: ObjectStore;
  const folder = scratchFolder();
  beforeAll(async () => {
    store = await open();
  });
  const own = () => `t${randomBytes(6).toString('hex')}`;
  const listed = (prefix: string): Promise<string[]> => keysOf(store, prefix);

  describe('create', () => {
    it('lets exactly one of 50 racing creates win, and readers see its bytes', async () => {
      const key = `${own()}/race`;
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, i) => store.create(key, bytesOf(`author ${i}`))),
      );
      const winners = answers.flatMap((answer, i) => (answer === 'created' ? [i] : []));
      expect(winners).toHaveLength(1);
      expect(Buffer.from((await store.get(key)) ?? []).toString()).toBe(`author ${winners[0]}`);
    });

    it('never changes an existing object', async () => {
      const key = `${own()}/fixed`;
      expect(await store.create(key, bytesOf('first'))).toBe('created');
      expect(await store.create(key, bytesOf('second'))).toBe('exists');
      expect(await store.create(key, bytesOf('first'))).toBe('exists');
      expect(Buffer.from((await store.get(key)) ?? []).toString()).toBe('first');
    });

    it('makes the object visible at once to get, head, stream, list and listFolder', async () => {
      const home = own();
      const bytes = randomBytes(3000);
      for (let i = 0; i < 10; i++) {
        const key = `${home}/${i}.bin`;
        await store.create(key, bytes);
        expect(Buffer.from((await store.get(key)) ?? []).equals(bytes)).toBe(true);
        expect(await store.head(key)).toMatchObject({ key, size: 3000 });
        expect(await listed(`${home}/`)).toContain(key);
        expect(await store.listFolder(`${home}/`)).toContain(`${i}.bin`);
      }
      const pieces: Uint8Array[] = [];
      for await (const piece of (await store.stream(`${home}/0.bin`)) ?? []) pieces.push(piece);
      expect(Buffer.concat(pieces).equals(bytes)).toBe(true);
    });

    it('stores an empty object', async () => {
      const key = `${own()}/empty`;
      expect(await store.create(key, new Uint8Array())).toBe('created');
      expect(await store.get(key)).toHaveLength(0);
      expect(await store.create(key, bytesOf('not empty'))).toBe('exists');
    });

    it('gives the object the current time', async () => {
      const key = `${own()}/dated`;
      await store.create(key, bytesOf('x'));
      expect(Math.abs(Date.now() - ((await store.head(key))?.modified.getTime() ?? 0))).toBeLessThan(60_000);
    });
  });

  describe('a missing object', () => {
    it('gives null, false or an empty list, never an error', async () => {
      const home = own();
      expect(await store.get(`${home}/none`)).toBeNull();
      expect(await store.head(`${home}/none`)).toBeNull();
      expect(await store.stream(`${home}/none`)).toBeNull();
      expect(await store.getToFile(`${home}/none`, join(folder, home))).toBe(false);
      expect(await listed(`${home}/`)).toEqual([]);
      expect(await store.listFolder(`${home}/`)).toEqual([]);
      await store.delete(`${home}/none`);
    });

    it('is missing even if its key is the folder of another key', async () => {
      const home = own();
      await store.create(`${home}/a/b`, bytesOf('x'));
      expect(await store.get(`${home}/a`)).toBeNull();
      expect(await store.head(`${home}/a`)).toBeNull();
      expect(await store.get(`${home}/a/b/c`)).toBeNull();
    });
  });

  describe('files', () => {
    it('are uploaded, in parts if they are large, and downloaded with the same bytes', async () => {
      const bytes = randomBytes(13 << 20);
      const [path, copy] = [join(folder, 'large'), join(folder, 'large-copy')];
      await writeFile(path, bytes);
      const key = `${own()}/state.safetensors`;
      expect(await store.createFromFile(key, path)).toBe('created');
      expect(await store.createFromFile(key, path)).toBe('exists');
      expect(await store.head(key)).toMatchObject({ size: bytes.length });
      expect(await store.getToFile(key, copy)).toBe(true);
      expect(
        createHash('sha256')
          .update(await readFile(copy))
          .digest('hex'),
      ).toBe(createHash('sha256').update(bytes).digest('hex'));
    });

    it('that several authors write under one key: exactly one whole file wins', async () => {
      const key = `${own()}/raced`;
      const bodies = Array.from({ length: 4 }, () => randomBytes(11 << 20));
      const paths = bodies.map((_, i) => join(folder, `racer-${i}`));
      await Promise.all(bodies.map((body, i) => writeFile(paths[i] as string, body)));
      const answers = await Promise.all(paths.map((path) => store.createFromFile(key, path)));
      expect(answers.filter((answer) => answer === 'created')).toHaveLength(1);
      const stored = Buffer.from((await store.get(key)) ?? []);
      expect(stored.equals(bodies[answers.indexOf('created')] as Buffer)).toBe(true);
    });

    it('that are small are uploaded, too', async () => {
      const path = join(folder, 'small');
      await writeFile(path, 'small');
      const key = `${own()}/small`;
      expect(await store.createFromFile(key, path)).toBe('created');
      expect(Buffer.from((await store.get(key)) ?? []).toString()).toBe('small');
    });

    it('report the bytes moved so far, in uploads and downloads', async () => {
      const bytes = randomBytes(21 << 20);
      const path = join(folder, 'told');
      await writeFile(path, bytes);
      const key = `${own()}/told`;
      for (const move of ['createFromFile', 'getToFile'] as const) {
        const told: number[] = [];
        await store[move](key, path, { onProgress: (moved) => told.push(moved) });
        expect(told.length).toBeGreaterThanOrEqual(3);
        expect(told).toEqual([...told].sort((a, b) => a - b));
        expect(told.at(-1)).toBe(bytes.length);
      }
    });

    it('are aborted by a signal, and then leave neither an object nor a file', async () => {
      const path = join(folder, 'aborted');
      await writeFile(path, randomBytes(12 << 20));
      const key = `${own()}/aborted`;
      const aborted = { signal: AbortSignal.abort() };
      await expect(store.createFromFile(key, path, aborted)).rejects.toThrow();
      expect(await store.head(key)).toBeNull();
      await store.createFromFile(key, path);
      await expect(store.getToFile(key, join(folder, 'never'), aborted)).rejects.toThrow();
      expect((await readdir(folder)).filter((name) => name.startsWith('never'))).toEqual([]);
    });
  });

  describe('listing', () => {
    it('is in key order and by prefix, even if names contain characters that sort before or after a slash', async () => {
      const home = own();
      const names = ['a', 'a-b', 'a.txt', 'a/x', 'a/y/z', 'a0', 'ab', 'b/1', 'b/10', 'b/2'].filter(
        (n) => n !== 'a',
      );
      await Promise.all(names.map((name) => store.create(`${home}/${name}`, bytesOf(name))));
      expect(await listed(`${home}/`)).toEqual([...names].sort().map((name) => `${home}/${name}`));
      expect(await listed(`${home}/a`)).toEqual(
        names
          .filter((name) => name.startsWith('a'))
          .sort()
          .map((name) => `${home}/${name}`),
      );
      expect(await listed(`${home}/b/1`)).toEqual([`${home}/b/1`, `${home}/b/10`]);
      expect(await store.listFolder(`${home}/`)).toEqual(['a-b', 'a.txt', 'a/', 'a0', 'ab', 'b/']);
      expect(await store.listFolder(`${home}/a/`)).toEqual(['x', 'y/']);
    });

    it('returns more than one page of 1,000 names', async () => {
      const home = own();
      const names = Array.from({ length: 1030 }, (_, i) => String(i).padStart(5, '0'));
      for (let start = 0; start < names.length; start += 64) {
        await Promise.all(
          names.slice(start, start + 64).map((name) => store.create(`${home}/${name}`, bytesOf('x'))),
        );
      }
      expect(await store.listFolder(`${home}/`)).toEqual(names);
      expect(await listed(`${home}/`)).toEqual(names.map((name) => `${home}/${name}`));
    });

    it('does not show deleted objects, nor their empty folders', async () => {
      const home = own();
      await store.create(`${home}/folder/only`, bytesOf('x'));
      await store.delete(`${home}/folder/only`);
      expect(await listed(`${home}/`)).toEqual([]);
      expect(await store.listFolder(`${home}/`)).toEqual([]);
      expect(await store.create(`${home}/folder/only`, bytesOf('again'))).toBe('created');
    });
  });

  describe('keys', () => {
    const bad = [
      '',
      '/a',
      'a/',
      'a//b',
      '.',
      '..',
      'a/../b',
      'a/./b',
      '.hidden',
      'a/.b',
      'a b',
      'ä',
      'a\\b',
      'a\0',
      'x'.repeat(513),
    ];
    it.each(bad)('such as %j are refused by every call', async (key) => {
      await expect(store.get(key)).rejects.toThrow(/key/);
      await expect(store.head(key)).rejects.toThrow(/key/);
      await expect(store.create(key, bytesOf('x'))).rejects.toThrow(/key/);
      await expect(store.createFromFile(key, join(folder, 'small'))).rejects.toThrow(/key/);
      await expect(store.getToFile(key, join(folder, 'out'))).rejects.toThrow(/key/);
      await expect(store.delete(key)).rejects.toThrow(/key/);
    });

    it('may hold every allowed character', async () => {
      const key = `${own()}/AZaz09._~=-/runs~2/x.json.gz.r1`;
      expect(await store.create(key, bytesOf('x'))).toBe('created');
      expect(await listed(key)).toEqual([key]);
    });

    it('of folders must end in a slash', async () => {
      await expect(store.listFolder('runs')).rejects.toThrow(/end in "\/"/);
    });
  });

  it('passes the probe of `probeStore`, which leaves nothing behind', async () => {
    await probeStore(store);
    expect(await listed('probe/')).toEqual([]);
  });

  it('has an address without secrets', () => {
    expect(store.address).toMatch(/^(dir:\/|s3:\/\/)/);
    expect(store.address).not.toContain(process.env.AWS_SECRET_ACCESS_KEY ?? 'no secret is set');
  });
}
