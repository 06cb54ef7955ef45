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
    // What was folded is the truth. The file is looked for last: a collection writes it before it deletes a single record.
    get: async (key) => {
      const bytes = await raw.get(key);
      const episode = await foldedAt(key);
      return episode ? bytesOf(episode) : bytes;
    },
    head: async (key) => {
      const info = await raw.head(key);
      const episode = await foldedAt(key);
      return episode ? infoOf(key, episode) : info;
    },
    create: async (key, bytes) => {
      if (await foldedAt(key)) return 'exists';
      const answer = await raw.create(key, bytes);
      // A collection may have folded another record since, and deleted that one: then this one was put beside the truth.
      if (answer === 'exists' || !(await foldedAt(key))) return answer;
      await raw.delete(key);
      return 'exists';
    },
    createFromFile: (key, path, transfer) => raw.createFromFile(key, path, transfer),
    getToFile: (key, path, transfer) => raw.getToFile(key, path, transfer),
    stream: (key) => raw.stream(key),
    async *list(prefix) {
      if (!parseEvaluationKey(prefix)) {
        yield* raw.list(prefix);
        return;
      }
      const infos = new Map<string, ObjectInfo>();
      for await (const info of raw.list(prefix)) infos.set(info.key, info);
      for (const [key, episode] of (await fileAt(prefix)) ?? [])
        if (key.startsWith(prefix)) infos.set(key, await infoOf(key, episode));
      yield* [...infos.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
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
