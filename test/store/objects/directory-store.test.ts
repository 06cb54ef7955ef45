import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { bytesOf, conformance } from './conformance.js';

const folders: string[] = [];
async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'longhaul-dir-'));
  folders.push(path);
  return path;
}
afterAll(() => Promise.all(folders.map((path) => rm(path, { recursive: true, force: true }))));

describe('a store in a directory', () => {
  conformance(async () => openDirectoryStore(await folder()));

  it('shares its keys with another process that opens it', async () => {
    const path = await folder();
    const [one, other] = [await openStore(`dir:${path}`), await openStore(path)];
    expect(await one.create('a/b', bytesOf('one'))).toBe('created');
    expect(await other.create('a/b', bytesOf('other'))).toBe('exists');
    expect(Buffer.from((await other.get('a/b')) ?? []).toString()).toBe('one');
  });

  it('sweeps old temporary files of killed writers, and keeps files that may still be written', async () => {
    const path = await folder();
    await openDirectoryStore(path);
    const incoming = join(path, '.incoming');
    await writeFile(join(incoming, 'old'), 'x');
    await writeFile(join(incoming, 'new'), 'x');
    const longAgo = new Date(Date.now() - 2 * 60 * 60 * 1000);
    await utimes(join(incoming, 'old'), longAgo, longAgo);
    await openStore(path);
    expect(await readdir(incoming)).toEqual(['new']);
  });

  it('leaves no temporary file behind', async () => {
    const path = await folder();
    const store = await openDirectoryStore(path);
    await Promise.all(Array.from({ length: 40 }, (_, i) => store.create(`k/${i % 20}`, bytesOf(`${i}`))));
    expect(await readdir(join(path, '.incoming'))).toEqual([]);
  });

  it('refuses a key that is the folder of other keys', async () => {
    const store = await openDirectoryStore(await folder());
    await store.create('a/b', bytesOf('x'));
    await expect(store.create('a', bytesOf('x'))).rejects.toThrow(/folder of other keys/);
  });

  it('says what to do if it cannot make its directory', async () => {
    const path = await folder();
    await writeFile(join(path, 'file'), 'x');
    await expect(openStore(join(path, 'file', 'store'))).rejects.toMatchObject({
      name: 'StoreUnfit',
      message: expect.stringContaining('choose a directory') as string,
    });
  });
});

describe('openStore', () => {
  it.each([
    ['gs://bucket/prefix', /unknown scheme "gs:"/],
    ['dir:', /empty/],
    ['s3://', /no bucket|not a URL/],
    ['s3://key:secret@bucket/prefix', /never holds credentials/],
    ['s3://bucket/prefix?secret=x', /unknown parameter "secret"/],
    ['s3://bucket/pre fix', /may hold only/],
  ])('refuses %s', async (address, problem) => {
    await expect(openStore(address)).rejects.toThrow(problem);
  });
});
