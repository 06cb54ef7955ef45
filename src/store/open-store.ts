// Opens a store by its address, and proves that it is fit for records (R31).
import { randomBytes } from 'node:crypto';
import { openDirectoryStore } from './objects/directory-store.js';
import { type OpenedStore, withFoldedEvaluations } from './runs/episodes.js';
import type { ObjectStore } from './objects/object-store.js';
import { parseS3Address } from './objects/s3-address.js';
import { StoreUnfit } from './record-errors.js';

const racers = 8;
/** Temporary bytes that were not touched for this long belong to a dead writer. */
const abandonedMs = { directory: 60 * 60 * 1000, s3: 24 * 60 * 60 * 1000 };

/**
 * `address`: `dir:/path`, a plain path, or `s3://bucket/prefix?endpoint=http://host:port&region=us-east-1`. Credentials come from the
 * environment or the SDK's own files, never from the address. Removes old temporary bytes of killed writers.
 */
export async function openStore(address: string): Promise<OpenedStore> {
  if (address.startsWith('s3://')) {
    const { openS3Store } = await import('./objects/s3-store.js');
    const store = withFoldedEvaluations(openS3Store(parseS3Address(address)));
    // A failed sweep does not matter: the bucket's policy may forbid listing uploads.
    void store.sweep(abandonedMs.s3).catch(() => undefined);
    return store;
  }
  const scheme = /^([a-z][a-z0-9+.-]+):/i.exec(address)?.[1];
  if (scheme !== undefined && scheme !== 'dir') {
    throw new StoreUnfit(
      // Print only the scheme: people put passwords into the addresses of other stores.
      `the store address has the unknown scheme "${scheme}:"; use dir:/path or s3://bucket/prefix`,
    );
  }
  const path = scheme === 'dir' ? address.slice('dir:'.length) : address;
  if (path === '') throw new StoreUnfit('the store address is empty; use dir:/path or s3://bucket/prefix');
  const store = withFoldedEvaluations(await openDirectoryStore(path));
  await store.sweep(abandonedMs.directory);
  return store;
}

/** Throws `StoreUnfit`, with a remedy, unless creates are exclusive and a created object can be read at once. Removes its own objects. */
export async function probeStore(store: ObjectStore): Promise<void> {
  const key = `probe/${randomBytes(12).toString('hex')}`;
  const bodies = Array.from({ length: racers }, (_, i) =>
    new TextEncoder().encode(`racer ${i} ${randomBytes(8).toString('hex')}`),
  );
  try {
    const answers = await Promise.all(bodies.map((body) => store.create(key, body)));
    const winners = bodies.filter((_, i) => answers[i] === 'created');
    const stored = await store.get(key);
    if (stored === null)
      throw unfit(store, 'an object that was just created cannot be read (no read-after-write)');
    if (winners.length !== 1)
      throw unfit(store, `${winners.length} of ${racers} simultaneous creates of one key reported success`);
    if (Buffer.compare(stored, winners[0] as Uint8Array) !== 0) {
      throw unfit(store, 'a create reported success, but the object of another create is stored');
    }
    if ((await store.create(key, new TextEncoder().encode('late'))) !== 'exists') {
      throw unfit(store, 'a create overwrote an existing object');
    }
    const again = await store.get(key);
    if (again === null || Buffer.compare(again, stored) !== 0)
      throw unfit(store, 'a create changed an existing object');
    const names = await store.listFolder('probe/');
    if (!names.includes(key.slice('probe/'.length)))
      throw unfit(store, 'an object that was just created is not listed');
  } finally {
    await store.delete(key).catch(() => undefined);
  }
}

function unfit(store: ObjectStore, problem: string): StoreUnfit {
  return new StoreUnfit(
    `${store.address} is not fit to hold records: ${problem}. Records need create-only puts and read-after-write. ` +
      (store.address.startsWith('s3:')
        ? 'Use an S3 service that honours "If-None-Match: *" on PutObject and CompleteMultipartUpload, or a directory.'
        : 'Use a local file system with hard links, or S3.'),
  );
}
