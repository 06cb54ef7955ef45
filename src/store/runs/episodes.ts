// A view of the store in which each episode is at its own key, whether it is a single record or folded into one file (R23). The folded
// file is the truth: a single record beside it is a leftover, or was written late by a delayed process.
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
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
import {
  episodesFolder,
  evaluationEpisodesFolder,
  parseEpisodeKey,
  parseEvaluationKey,
} from '../record-keys.js';
import type { ObjectInfo, ObjectStore } from '../objects/object-store.js';
import { compress } from '../records/record-codec.js';
import { readRecord } from '../records/records.js';

/** Number of decoded files to keep. Few are enough: readers read all episodes of one folder, then the next folder. */
const filesKept = 4;

/**
 * A view with folded episodes at their own keys. `placeOf`: the step or evaluation to which an episode's key, or a prefix of such keys,
 * belongs; null for keys that the view does not change.
 */
function withFoldedEpisodes(store: ObjectStore, placeOf: (key: string) => EpisodesPlace | null): ObjectStore {
  const files = new FoldedFiles(store);
  const fileAt = async (key: string): Promise<FoldedEpisodes | null> => {
    const place = placeOf(key);
    return place && files.at(place);
  };
  const foldedAt = async (key: string): Promise<StoredEpisode | null> =>
    (await fileAt(key))?.get(key) ?? null;
  return {
    address: store.address,
    // Look for the folded file last: a collection writes it before it deletes the single records.
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
      // A collection may have folded another author's record of this episode meanwhile. Then the folded record wins: delete ours.
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

/** The view for the episodes of steps. `store`: the run's view (`openRunView`), as the folded file holds no record that was set aside. */
export function withFoldedSteps(store: ObjectStore): ObjectStore {
  return withFoldedEpisodes(store, parseEpisodeKey);
}

/** A store as all readers open it: through `withFoldedEvaluations`. Code that folds needs `unfolded`: through any view, folded episodes look like single records. */
export interface OpenedStore extends ObjectStore {
  /** The store without the view. */
  readonly unfolded: ObjectStore;
}

/** The view for the episodes of evaluations. Every opened store has it: many readers read evaluations, and none can forget it. */
export function withFoldedEvaluations(unfolded: ObjectStore): OpenedStore {
  const view = withFoldedEpisodes(unfolded, (key) => {
    const { state, suite } = parseEvaluationKey(key) ?? {};
    return state === undefined || suite === undefined ? null : { state, suite };
  });
  return { ...view, unfolded };
}

/** Episodes of a step in (slot, sample) order; empty if there are none. `run`: the run whose folder holds the step. */
export async function readStepEpisodes(
  store: ObjectStore,
  run: string,
  step: number,
): Promise<EpisodeRecord[]> {
  // Read the folded file directly: the view would encode each episode, and we would decode it again.
  const folded = await readFolded(store, { run, step });
  if (folded) return [...folded.values()].map(({ record }) => record);
  return readEpisodesIn(withFoldedSteps(store), episodesFolder(run, step));
}

/** Episodes of an evaluation in slot order. */
export async function readEvaluationEpisodes(
  store: ObjectStore,
  { result }: { result: Pick<EvaluationResult, 'state' | 'suite'> },
): Promise<EpisodeRecord[]> {
  return readEpisodesIn(store, evaluationEpisodesFolder(result.state, result.suite));
}

/** Episodes of a folder in (slot, sample) order. `view`: a view with folded episodes at their own keys. */
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

/** Cache of the last few folded files. A file never changes; a missing file is looked for again at each call. */
class FoldedFiles {
  private readonly kept = new Map<string, FoldedEpisodes>();
  /** By key: `running` holds the current read, `next` the read that starts after it. */
  private readonly running = new Map<string, Promise<unknown>>();
  private readonly next = new Map<string, Promise<FoldedEpisodes | null>>();

  constructor(private readonly store: ObjectStore) {}

  /** The file, read at some moment after the call; null if it did not exist then. */
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

  /** Many callers ask at once, one for each episode. The current read may have begun before their call, so they share the next read. */
  private look(key: string, place: EpisodesPlace): Promise<FoldedEpisodes | null> {
    const running = this.running.get(key);
    if (!running) return this.begin(key, place);
    const next = this.next.get(key) ?? running.then(() => this.begin(key, place));
    this.next.set(key, next);
    return next;
  }

  private begin(key: string, place: EpisodesPlace): Promise<FoldedEpisodes | null> {
    this.next.delete(key);
    // The previous read may have found the file.
    const look = Promise.resolve(this.kept.get(key) ?? readFolded(this.store, place));
    const ended = (): void => void this.running.delete(key);
    this.running.set(key, look.then(ended, ended));
    return look;
  }
}
