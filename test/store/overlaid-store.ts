// A store with some of its methods replaced, for tests.
import type { ObjectStore } from '../../src/store/objects/object-store.js';

/** Methods that `verbs` lacks are the store's own. */
export const overlaid = <Store extends ObjectStore>(store: Store, verbs: Partial<ObjectStore>): Store =>
  new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(verbs, name) ?? Reflect.get(target, name);
      return typeof member === 'function' ? (member.bind(target) as unknown) : member;
    },
  });

/** All keys with the given prefix. */
export async function keysOf(store: ObjectStore, prefix = ''): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of store.list(prefix)) keys.push(key);
  return keys;
}
