// An object store in memory, for tests that read and write thousands of small records.
import type { ObjectInfo, ObjectStore } from '../../../src/store/objects/object-store.js';

export interface MemoryStore extends ObjectStore {
  /** Number of reads that were answered. */
  reads: number;
  /** Each read waits for this first. */
  beforeRead: () => Promise<void>;
}

export function memoryStore(): MemoryStore {
  const objects = new Map<string, { bytes: Uint8Array; modified: Date }>();
  const notHere = (): never => {
    throw new Error('the store in memory has no files');
  };
  const read = async (): Promise<void> => {
    await store.beforeRead();
    store.reads += 1;
  };
  const infos = (prefix: string): ObjectInfo[] =>
    [...objects]
      .filter(([key]) => key.startsWith(prefix))
      .map(([key, { bytes, modified }]) => ({ key, size: bytes.length, modified }))
      .sort((a, b) => (a.key < b.key ? -1 : 1));
  const store: MemoryStore = {
    address: 'memory:',
    reads: 0,
    beforeRead: async () => undefined,
    get: async (key) => {
      await read();
      return objects.get(key)?.bytes ?? null;
    },
    head: async (key) => {
      await read();
      return infos(key).find((info) => info.key === key) ?? null;
    },
    create: async (key, bytes) => {
      if (objects.has(key)) return 'exists';
      objects.set(key, { bytes, modified: new Date('2026-01-02T03:04:05.678Z') });
      return 'created';
    },
    async *list(prefix) {
      await read();
      yield* infos(prefix);
    },
    listFolder: async (prefix) => {
      await read();
      const names = infos(prefix).map(({ key }) => key.slice(prefix.length).replace(/\/.*$/, '/'));
      return [...new Set(names)].sort();
    },
    delete: async (key) => void objects.delete(key),
    sweep: async () => 0,
    createFromFile: notHere,
    getToFile: notHere,
    stream: notHere,
  };
  return store;
}
