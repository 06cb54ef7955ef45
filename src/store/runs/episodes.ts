// Episodes as their readers see them: each is at its key, as a single record or folded into the one file (R23). The folded file is the
// truth: a single record beside it is left over, or was written by a process that had stood still.
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { canonicalBytes } from '../records/canonical.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  type EpisodesPlace,
  foldedKeyOf,
  type FoldedEpisodes,
  readFolded,
  singlesFolderOf,
  type StoredEpisode,
} from './folded-episodes.js';
import { episodesFolder, parseEpisodeKey } from '../objects/layout.js';
import type { ObjectInfo, ObjectStore } from '../objects/object-store.js';
import { compress } from '../records/record-codec.js';
import { readRecord } from '../records/records.js';

/** Number of decoded files to keep: readers go through one folder after another, episode by episode. */
const filesKept = 4;

/**
 * A view with episodes at their keys, in each place that `placeOf` knows. `placeOf`: place of an episode's key and of a prefix of such
 * keys; null for any other.
 */
export function withFoldedEpisodes(
  store: ObjectStore,
  placeOf: (key: string) => EpisodesPlace | null,
): ObjectStore {
  const files = new FoldedFiles(store);
  const fileAt = async (key: string): Promise<FoldedEpisodes | null> => {
    const place = placeOf(key);
    return place && files.at(place);
  };
  const foldedAt = async (key: string): Promise<StoredEpisode | null> =>
    (await fileAt(key))?.get(key) ?? null;
  return {
    address: store.address,
    // The file is looked for last: a collection writes it before it deletes a single record.
    get: async (key) => {
      const bytes = await store.get(key);
      const episode = await foldedAt(key);
      return episode ? bytesOf(episode) : bytes;
    },
    head: async (key) => {
      const info = await store.head(key);
      const episode = await foldedAt(key);
      return episode ? infoOf(key, episode) : info;
    },
    create: async (key, bytes) => {
      if (await foldedAt(key)) return 'exists';
      const answer = await store.create(key, bytes);
      // A collection may have folded another record since, and deleted that one: then this one was written beside the truth.
      if (answer === 'exists' || !(await foldedAt(key))) return answer;
      await store.delete(key);
      return 'exists';
    },
    createFromFile: (key, path, transfer) => store.createFromFile(key, path, transfer),
    getToFile: (key, path, transfer) => store.getToFile(key, path, transfer),
    stream: (key) => store.stream(key),
    async *list(prefix) {
      if (!placeOf(prefix)) {
        yield* store.list(prefix);
        return;
      }
      const infos = new Map<string, ObjectInfo>();
      for await (const info of store.list(prefix)) infos.set(info.key, info);
      for (const [key, episode] of (await fileAt(prefix)) ?? [])
        if (key.startsWith(prefix)) infos.set(key, await infoOf(key, episode));
      yield* [...infos.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    },
    listFolder: async (prefix) => {
      const names = await store.listFolder(prefix);
      const place = placeOf(prefix);
      if (!place || prefix !== singlesFolderOf(place)) return names;
      const folded = [...((await files.at(place))?.keys() ?? [])].map((key) => key.slice(prefix.length));
      return [...new Set([...names, ...folded])].sort();
    },
    delete: (key) => store.delete(key),
    sweep: (olderThanMs) => store.sweep(olderThanMs),
  };
}

/** The view for the episodes of steps. `store`: as the run sees it, because records set aside are not the folded ones. */
export function withFoldedSteps(store: ObjectStore): ObjectStore {
  return withFoldedEpisodes(store, parseEpisodeKey);
}

/** In (slot, sample) order; empty if there are none. `run`: the one with the step in its timeline. */
export async function readStepEpisodes(
  store: ObjectStore,
  run: string,
  step: number,
): Promise<EpisodeRecord[]> {
  // The view would encode each folded episode, only to decode it again.
  const folded = await readFolded(store, { run, step });
  if (folded) return [...folded.values()].map(({ record }) => record);
  return readEpisodesIn(withFoldedSteps(store), episodesFolder(run, step));
}

/** In (slot, sample) order. `view`: one with folded episodes at their keys. */
export async function readEpisodesIn(view: ObjectStore, folder: string): Promise<EpisodeRecord[]> {
  const names = await view.listFolder(folder);
  const records = await inParallel(names, (name) => readRecord(view, `${folder}${name}`, 'episode'));
  return records.filter((episode) => episode !== null);
}

function bytesOf({ record }: StoredEpisode): Promise<Uint8Array> {
  return compress(canonicalBytes(record));
}

async function infoOf(key: string, episode: StoredEpisode): Promise<ObjectInfo> {
  return { key, size: (await bytesOf(episode)).length, modified: episode.recordedAt };
}

/** The newest of the files read. A file never changes; a missing one is looked for again. */
class FoldedFiles {
  private readonly kept = new Map<string, FoldedEpisodes>();
  /** Reads under way, and those that wait for them; by key. */
  private readonly running = new Map<string, Promise<unknown>>();
  private readonly next = new Map<string, Promise<FoldedEpisodes | null>>();

  constructor(private readonly store: ObjectStore) {}

  /** The file as of some moment after the call; null if it did not exist. */
  async at(place: EpisodesPlace): Promise<FoldedEpisodes | null> {
    const key = foldedKeyOf(place);
    const file = this.kept.get(key) ?? (await this.look(key, place));
    if (!file) return null;
    this.kept.delete(key);
    this.kept.set(key, file);
    for (const oldest of this.kept.keys()) {
      if (this.kept.size <= filesKept) break;
      this.kept.delete(oldest);
    }
    return file;
  }

  /** Many callers ask at once, one for each episode. A read under way may have begun too early for them; they share the next one. */
  private look(key: string, place: EpisodesPlace): Promise<FoldedEpisodes | null> {
    const running = this.running.get(key);
    if (!running) return this.begin(key, place);
    const next = this.next.get(key) ?? running.then(() => this.begin(key, place));
    this.next.set(key, next);
    return next;
  }

  private begin(key: string, place: EpisodesPlace): Promise<FoldedEpisodes | null> {
    this.next.delete(key);
    // The read before may have found it.
    const look = Promise.resolve(this.kept.get(key) ?? readFolded(this.store, place));
    const ended = (): void => void this.running.delete(key);
    this.running.set(key, look.then(ended, ended));
    return look;
  }
}
