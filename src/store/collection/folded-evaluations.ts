// The store as all its readers see it: the episodes of an evaluation are at their keys, also where a collection has put them into one
// file (R23). Evaluations are read in many places, begun by any run and never committed as a step is: done here, no reader can forget it.
import { canonicalBytes } from '../records/canonical.js';
import { foldedKeyOf, type FoldedEpisodes, readFolded, type StoredEpisode } from '../runs/episodes.js';
import { parseEvaluationKey } from '../objects/layout.js';
import type { ObjectInfo, ObjectStore } from '../objects/object-store.js';
import { compress } from '../records/record-codec.js';

/** Files that are kept decoded: readers go through one evaluation after another, episode by episode. */
const filesKept = 4;

const rawStores = new WeakMap<ObjectStore, ObjectStore>();

/** What is really there: for those that fold. */
export function unfoldedStore(store: ObjectStore): ObjectStore {
  return rawStores.get(store) ?? store;
}

export function withFoldedEvaluations(raw: ObjectStore): ObjectStore {
  /** By the file's key; a file never changes, and one that is not there is asked for again. */
  const files = new Map<string, FoldedEpisodes>();

  async function fileAt(prefix: string): Promise<FoldedEpisodes | null> {
    const place = parseEvaluationKey(prefix);
    if (!place) return null;
    const { rest: _rest, ...evaluation } = place;
    const key = foldedKeyOf(evaluation);
    const known = files.get(key);
    const file = known ?? (await readFolded(raw, evaluation));
    if (!file) return null;
    files.delete(key);
    files.set(key, file);
    for (const oldest of files.keys()) {
      if (files.size <= filesKept) break;
      files.delete(oldest);
    }
    return file;
  }

  const foldedAt = async (key: string): Promise<StoredEpisode | null> =>
    (await fileAt(key))?.get(key) ?? null;
  const bytesOf = ({ record }: StoredEpisode): Promise<Uint8Array> => compress(canonicalBytes(record));
  const infoOf = async (key: string, episode: StoredEpisode): Promise<ObjectInfo> => ({
    key,
    size: (await bytesOf(episode)).length,
    modified: episode.recordedAt,
  });

  const view: ObjectStore = {
    address: raw.address,
    // The single record first: it goes after the file is there.
    get: async (key) => {
      const bytes = await raw.get(key);
      const episode = bytes ? null : await foldedAt(key);
      return episode ? bytesOf(episode) : bytes;
    },
    head: async (key) => {
      const info = await raw.head(key);
      const episode = info ? null : await foldedAt(key);
      return episode ? infoOf(key, episode) : info;
    },
    create: async (key, bytes) => ((await foldedAt(key)) ? 'exists' : raw.create(key, bytes)),
    createFromFile: (key, path, transfer) => raw.createFromFile(key, path, transfer),
    getToFile: (key, path, transfer) => raw.getToFile(key, path, transfer),
    stream: (key) => raw.stream(key),
    async *list(prefix) {
      const infos: ObjectInfo[] = [];
      const isEvaluation = parseEvaluationKey(prefix) !== null;
      for await (const info of raw.list(prefix)) {
        if (isEvaluation) infos.push(info);
        else yield info;
      }
      if (!isEvaluation) return;
      const there = new Set(infos.map(({ key }) => key));
      for (const [key, episode] of (await fileAt(prefix)) ?? [])
        if (key.startsWith(prefix) && !there.has(key)) infos.push(await infoOf(key, episode));
      yield* infos.sort((a, b) => (a.key < b.key ? -1 : 1));
    },
    listFolder: async (prefix) => {
      const names = await raw.listFolder(prefix);
      const place = parseEvaluationKey(prefix);
      if (place?.rest !== 'episodes/') return names;
      const folded = [...((await fileAt(prefix))?.keys() ?? [])].map((key) => key.slice(prefix.length));
      return [...new Set([...names, ...folded])].sort();
    },
    delete: (key) => raw.delete(key),
    sweep: (olderThanMs) => raw.sweep(olderThanMs),
  };
  rawStores.set(view, raw);
  return view;
}
