// Records that are set aside (R24), by a quarantine or a resample: they keep their bytes, and readers of the run use `KEY.r1` in their place.
// A view of the store does this for all readers, so that no reader can forget it.
import type { ControlRecord } from '../../spec/records/control-records.js';
import { keysSetAsideBy, readControl } from './control-records.js';
import { checkKey, replacementKey } from '../record-keys.js';
import type { ObjectInfo, ObjectStore } from '../objects/object-store.js';
import { readIfWhole } from '../records/records.js';
import { timelinesOf } from './run-records.js';
import { BadKey } from '../record-errors.js';

/** Records that a run makes again if they are missing: a step's records before its update, and evaluations. */
const replaceable =
  /^(?<folder>runs\/[^/]+\/steps\/[0-9]+\/|evals\/[^/]+\/[^/]+\/)(?<name>plan\.json|waves\/[0-9]+\.json|batch\.safetensors|rescored\.[0-9a-f]{16}\.safetensors|suite\.json|result\.json|episodes\/[0-9.]+\.json\.gz)(\.r[1-9][0-9]*)?$/;

/** Records that may be missing: without them a model on a Tinker server only gets a batch again. */
const dispensable = /^(?<folder>runs\/[^/]+\/applied\/[0-9]+\/)(?<name>[0-9]+\.json)(\.r[1-9][0-9]*)?$/;

/**
 * For each record, the names of the files in the same folder that are made from it and set aside with it. A batch's rescored log-probs are not
 * among them: another batch has its own file, and the same batch, if it is built again, has the same log-probs.
 */
const madeFrom: readonly [record: RegExp, made: RegExp][] = [
  [/^plan\.json$/, /^(waves\/|episodes\/|batch\.safetensors)/],
  [/^waves\//, /^batch\.safetensors/],
  [/^episodes\//, /^(waves\/|batch\.safetensors|result\.json)/],
];

/** Throws `BadKey` unless a run makes the record at `key` again: only such records can be quarantined. */
export function checkQuarantinable(key: string): { folder: string; name: string } {
  checkKey(key);
  if (/(^|\/)update\.json(\.r[0-9]+)?$/.test(key)) {
    throw new BadKey(
      `${key} cannot be quarantined: an update identifies the weights, and nothing can replace it`,
    );
  }
  const { folder, name } = (replaceable.exec(key) ?? dispensable.exec(key))?.groups ?? {};
  if (folder === undefined || name === undefined) {
    throw new BadKey(
      `${key} cannot be quarantined: a run can only make plans, episodes, batches and evaluations again. ` +
        'Restore this record from a copy',
    );
  }
  return { folder, name };
}

/** True if a run can make the record at `key` again. */
export function isReplaceable(key: string): boolean {
  return replaceable.test(key);
}

/** Whether `longhaul quarantine` would accept the record. `store`: the store itself, not a run's view. */
async function canBeSetAside(store: ObjectStore, key: string): Promise<boolean> {
  try {
    const { folder } = checkQuarantinable(key);
    return (await store.head(key)) !== null && (await store.head(`${folder}update.json`)) === null;
  } catch (error) {
    if (error instanceof BadKey) return false;
    throw error;
  }
}

/** What a person can do about a record that a run cannot read: restore it or, if the run makes it again, set it aside. */
export async function remedyFor(store: ObjectStore, key: string, run: string): Promise<string> {
  const restore = `Restore ${key} from a copy`;
  if (!(await canBeSetAside(store, key))) return restore;
  const named = key.startsWith('runs/') ? '' : ` --run ${run}`;
  return `${restore}, or set it aside with \`longhaul quarantine ${key}${named}\``;
}

/**
 * Keys of everything made from a record and still in use, replacements included; `aside`: keys set aside earlier. For a step's record the
 * batch's key is always included: a delayed attempt may still write it. Throws `BadKey` as `checkQuarantinable` does.
 */
export async function keysMadeFrom(
  store: ObjectStore,
  key: string,
  aside: ReadonlySet<string>,
): Promise<string[]> {
  const { folder, name } = checkQuarantinable(key);
  const made = madeFrom.find(([record]) => record.test(name))?.[1];
  if (!made) return [];
  const keys = new Set<string>();
  for await (const info of store.list(folder)) {
    if (made.test(info.key.slice(folder.length)) && !aside.has(info.key)) keys.add(info.key);
  }
  if (name.startsWith('episodes/') && folder.startsWith('runs/'))
    for (const episode of await wavesEpisodes(store, folder, aside))
      if (episode !== key && !aside.has(episode)) keys.add(episode);
  if (folder.startsWith('runs/')) keys.add(inUse(`${folder}batch.safetensors`, aside));
  return [...keys].sort();
}

/** Episodes of the slots that a step's waves have added: other outcomes may lead to other waves. */
async function wavesEpisodes(
  store: ObjectStore,
  folder: string,
  aside: ReadonlySet<string>,
): Promise<string[]> {
  const key = `${folder}plan.json`;
  const plan = await readIfWhole(store, inUse(key, aside), 'plan');
  if (plan?.kind !== 'grpo' || !plan.dynamic_sampling) return [];
  const keys: string[] = [];
  for await (const info of store.list(`${folder}episodes/`)) {
    const slot = /^([0-9]+)\./.exec(info.key.slice(`${folder}episodes/`.length))?.[1];
    if (slot !== undefined && Number(slot) >= plan.slots.length) keys.push(info.key);
  }
  return keys;
}

/** Keys that the run's control records set aside. */
export function keysSetAside(records: readonly ControlRecord[]): Set<string> {
  return new Set(records.flatMap(({ change }) => keysSetAsideBy(change)));
}

/** The store as a run sees it: without the records that the run or its ancestors (R5) set aside. Returns `store` if there are none. */
export async function openRunView(store: ObjectStore, run: string): Promise<ObjectStore> {
  return viewWithout(store, await keysSetAsideIn(store, run));
}

async function keysSetAsideIn(store: ObjectStore, run: string): Promise<Set<string>> {
  const control: ControlRecord[] = [];
  for await (const timeline of timelinesOf(store, run))
    control.push(...(await readControl(store, timeline.run)));
  return keysSetAside(control);
}

/** Keys that each view was opened without. */
const asideOf = new WeakMap<ObjectStore, ReadonlySet<string>>();

/** True if the object for `key` in the run's `view` was set aside after the view was opened. */
export async function isSetAsideSince(view: ObjectStore, run: string, key: string): Promise<boolean> {
  const used = inUse(key, asideOf.get(view) ?? new Set());
  return (await keysSetAsideIn(view, run)).has(used);
}

/** `openRunView` for readers of many records: each run's view is opened once. */
export function openRunViews(store: ObjectStore): (run: string) => Promise<ObjectStore> {
  const views = new Map<string, Promise<ObjectStore>>();
  return (run) => {
    const view = views.get(run) ?? openRunView(store, run);
    views.set(run, view);
    return view;
  };
}

/** A view in which `KEY.r1` stands for each KEY that is set aside (`KEY.r2` if KEY.r1 is set aside too). */
export function viewWithout(store: ObjectStore, aside: ReadonlySet<string>): ObjectStore {
  if (aside.size === 0) return store;
  for (const key of aside) checkQuarantinable(key);
  const replaced = new Map(
    [...aside].filter((key) => !isReplacement(key, aside)).map((key) => [key, inUse(key, aside)]),
  );
  const original = new Map([...replaced].map(([key, used]) => [used, key]));
  const use = (key: string) => replaced.get(key) ?? key;

  /** The object as the view lists it; null if it is set aside. */
  const shown = (info: ObjectInfo): ObjectInfo | null => {
    if (aside.has(info.key)) return null;
    return { ...info, key: original.get(info.key) ?? info.key };
  };

  const view: ObjectStore = {
    address: store.address,
    get: (key) => store.get(use(key)),
    head: async (key) => {
      const info = await store.head(use(key));
      return info && { ...info, key };
    },
    create: (key, bytes) => store.create(use(key), bytes),
    createFromFile: (key, path, transfer) => store.createFromFile(use(key), path, transfer),
    getToFile: (key, path, transfer) => store.getToFile(use(key), path, transfer),
    stream: (key) => store.stream(use(key)),
    async *list(prefix) {
      // `KEY.r1` is listed as KEY, but other keys that begin with KEY may come before it: sort again.
      const infos: ObjectInfo[] = [];
      for await (const info of store.list(prefix)) {
        const seen = shown(info);
        if (seen) infos.push(seen);
      }
      yield* infos.sort((a, b) => (a.key < b.key ? -1 : 1));
    },
    listFolder: async (prefix) => {
      const names = await store.listFolder(prefix);
      const keys = names
        .filter((name) => !aside.has(prefix + name))
        .map((name) => original.get(prefix + name) ?? prefix + name);
      return keys.map((key) => key.slice(prefix.length)).sort();
    },
    delete: (key) => store.delete(use(key)),
    sweep: (olderThanMs) => store.sweep(olderThanMs),
  };
  asideOf.set(view, aside);
  return view;
}

/** The key that stands for `key`: `key` itself if it is not set aside. */
export function inUse(key: string, aside: ReadonlySet<string>): string {
  let used = key;
  for (let r = 1; aside.has(used); r++) used = replacementKey(key, r);
  return used;
}

function isReplacement(key: string, aside: ReadonlySet<string>): boolean {
  const match = /^(.*)\.r[1-9][0-9]*$/.exec(key);
  return match !== null && aside.has(match[1] as string);
}
