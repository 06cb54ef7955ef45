// The batch of a committed step, before and after a collection compresses it (R23).
import { beforeEach, describe, expect, it } from 'vitest';
import { sha256Hex } from '../../../src/base/sha256.js';
import { batchKey, foldedBatchKey } from '../../../src/store/record-keys.js';
import { compressSmall } from '../../../src/store/records/record-codec.js';
import { foldBatch, readBatch } from '../../../src/store/runs/stored-batch.js';
import { memoryStore, type MemoryStore } from '../../workers/follower/memory-store.js';

const [run, step] = ['tiny', 3];
const batch = Buffer.from('tokens '.repeat(1_000));
const recorded = sha256Hex(batch);
const [key, folded] = [batchKey(run, step), foldedBatchKey(run, step)];

describe('a batch', () => {
  let store: MemoryStore;
  beforeEach(() => void (store = memoryStore()));

  it('is replaced by a smaller file that reads as the same bytes', async () => {
    await store.create(key, batch);
    const freed = await foldBatch(store, run, step, recorded);
    expect(await store.get(key)).toBeNull();
    expect(freed).toBe(batch.length - (await store.get(folded))!.length);
    expect(Buffer.from((await readBatch(store, run, step))!)).toEqual(batch);
    expect(await foldBatch(store, run, step, recorded)).toBe(0);
  });

  it('that is not the batch its update names is not compressed: its bytes stay as the only evidence', async () => {
    const other = Buffer.from('another batch');
    await store.create(key, other);
    await expect(foldBatch(store, run, step, recorded)).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key,
    });
    expect(await store.get(key)).toEqual(other);
    expect(await store.get(folded)).toBeNull();
  });

  it('is kept if the stored compressed file holds another batch', async () => {
    await store.create(key, batch);
    await store.create(folded, await compressSmall(Buffer.from('another batch')));
    await expect(foldBatch(store, run, step, recorded)).rejects.toMatchObject({
      ...{ name: 'UnreadableRecord', key: folded },
    });
    expect(await store.get(key)).toEqual(batch);
  });
});
