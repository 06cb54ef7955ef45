// Create-only puts per second of the directory store: each one is a file, two fsyncs and a link.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openStore } from '../src/store/open-store.js';

/** As large as an episode's record. */
const bytes = 2048;
const putsAtOnce = 64;

export async function measureStore(seconds = 3): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-store-'));
  try {
    const store = await openStore(`dir:${folder}`);
    const content = new Uint8Array(bytes).fill(7);
    let puts = 0;
    const begun = performance.now();
    const writer = async (): Promise<void> => {
      while (performance.now() - begun < seconds * 1_000) {
        const n = puts++;
        const key = `bench/${Math.floor(n / 256)}/${n % 256}`;
        if ((await store.create(key, content)) !== 'created') throw new Error(`${key} was there already`);
      }
    };
    await Promise.all(Array.from({ length: putsAtOnce }, writer));
    return (1_000 * puts) / (performance.now() - begun);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
