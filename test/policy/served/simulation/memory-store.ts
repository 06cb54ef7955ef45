// A store in memory. Objects are created once, as in the others.
import type { ObjectInfo, ObjectStore } from '../../../../src/store/objects/object-store.js';

export class MemoryStore {
  readonly objects = new Map<string, Uint8Array>();
  private readonly folders = new Map<string, Set<string>>();

  create(key: string, bytes: Uint8Array): 'created' | 'exists' {
    if (this.objects.has(key)) return 'exists';
    this.objects.set(key, bytes);
    const parts = key.split('/');
    for (let depth = parts.length - 1; depth >= 0; depth--) {
      const folder = depth === 0 ? '' : `${parts.slice(0, depth).join('/')}/`;
      const names = this.folders.get(folder) ?? new Set<string>();
      this.folders.set(folder, names.add(depth === parts.length - 1 ? parts[depth]! : `${parts[depth]}/`));
    }
    return 'created';
  }

  listFolder(prefix: string): string[] {
    const names = this.folders.get(prefix);
    return names ? [...names].sort() : [];
  }

  keys(prefix: string): string[] {
    return [...this.objects.keys()].filter((key) => key.startsWith(prefix)).sort();
  }
}

/** One process's view. `at` is called around each operation: there, the scheduler may let another process go first, or end this one. */
export function viewOf(
  memory: MemoryStore,
  at: <T>(what: string, act: () => T, writes?: boolean) => Promise<T>,
): ObjectStore {
  const { objects } = memory;
  const info = (key: string): ObjectInfo | null => {
    const bytes = objects.get(key);
    return bytes ? { key, size: bytes.length, modified: new Date(0) } : null;
  };
  const notHere = (): never => {
    throw new Error('the simulation keeps no files');
  };
  return {
    address: 'memory:',
    get: (key) => at(`get ${key}`, () => objects.get(key) ?? null),
    head: (key) => at(`head ${key}`, () => info(key)),
    create: (key, bytes) => at(`create ${key}`, () => memory.create(key, bytes), true),
    createFromFile: notHere,
    getToFile: notHere,
    stream: notHere,
    async *list(prefix) {
      for (const key of await at(`list ${prefix}`, () => memory.keys(prefix))) yield info(key)!;
    },
    listFolder: (prefix) => at(`list ${prefix}`, () => memory.listFolder(prefix)),
    delete: notHere,
    sweep: notHere,
  };
}
