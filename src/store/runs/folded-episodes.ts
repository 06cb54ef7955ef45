// The file of folded episodes of a committed step or a whole evaluation (R23). It holds each record's whole content, and the time at which
// the record was stored.
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { canonicalBytes, canonicalText } from '../records/canonical.js';
import {
  episodeKey,
  episodesFolder,
  evaluationEpisodeKey,
  evaluationEpisodesFolder,
  foldedEpisodesKey,
  foldedEvaluationKey,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import {
  checkRecord,
  compressSmall,
  decompress,
  maxUncompressedBytes,
  parse,
} from '../records/record-codec.js';
import { UnreadableRecord } from '../record-errors.js';

export interface StoredEpisode {
  record: EpisodeRecord;
  /** When the record was stored. A start that was announced only after this time is a repetition (R9). */
  recordedAt: Date;
}

/** Episodes by the key that the single record has, or had before it was folded. */
export type FoldedEpisodes = ReadonlyMap<string, StoredEpisode>;

/** A step of a run (the run that holds the step in its folder), or an evaluation. */
export type EpisodesPlace = { run: string; step: number } | { state: Digest; suite: Digest };

export function foldedKeyOf(place: EpisodesPlace): string {
  return 'run' in place
    ? foldedEpisodesKey(place.run, place.step)
    : foldedEvaluationKey(place.state, place.suite);
}

export function singlesFolderOf(place: EpisodesPlace): string {
  return 'run' in place
    ? episodesFolder(place.run, place.step)
    : evaluationEpisodesFolder(place.state, place.suite);
}

export function singleKeyOf(
  place: EpisodesPlace,
  { slot, sample }: { slot: number; sample: number },
): string {
  return 'run' in place
    ? episodeKey(place.run, place.step, slot, sample)
    : evaluationEpisodeKey(place.state, place.suite, slot, sample);
}

/** Half of the readers' limit, so that no file is written that readers refuse. */
const foldLimitBytes = maxUncompressedBytes / 2;
const newline = 0x0a;

/** The folded episodes, in (slot, sample) order; null if the episodes are not folded. */
export async function readFolded(store: ObjectStore, place: EpisodesPlace): Promise<FoldedEpisodes | null> {
  const key = foldedKeyOf(place);
  const bytes = await store.get(key);
  return bytes && decodeFolded(key, place, await decompress(key, bytes));
}

/** Bytes of the file of folded episodes; the same episodes give the same bytes. Null if they are too large for one file. */
export async function encodeFolded(
  place: EpisodesPlace,
  episodes: readonly StoredEpisode[],
): Promise<Uint8Array | null> {
  const schema = 'run' in place ? 'longhaul.episodes/1' : 'longhaul.episodes/2';
  const header = { schema, ...place, count: episodes.length };
  const ordered = [...episodes].sort(
    (a, b) => a.record.slot - b.record.slot || a.record.sample - b.record.sample,
  );
  const lines = [
    header,
    ...ordered.map(({ record, recordedAt }) => ({ episode: record, recorded_at: recordedAt.toISOString() })),
  ].map((line) => canonicalBytes(line));
  const size = lines.reduce((sum, line) => sum + line.length + 1, 0);
  if (size > foldLimitBytes) return null;
  return compressSmall(Buffer.concat(lines.flatMap((line) => [line, Uint8Array.of(newline)])));
}

function decodeFolded(key: string, place: EpisodesPlace, bytes: Uint8Array): FoldedEpisodes {
  const [first, ...rest] = linesOf(bytes);
  const header = checkRecord(key, 'episodes', parse(key, first ?? new Uint8Array()));
  const { schema: _schema, count: _count, ...said } = header;
  if (canonicalText(said) !== canonicalText(place))
    throw new UnreadableRecord(key, `it says that it belongs to ${canonicalText(said)}`);
  const folded = new Map<string, StoredEpisode>();
  for (const [index, line] of rest.entries()) {
    const { record, recordedAt } = decodeLine(`${key} line ${index + 2}`, line);
    folded.set(singleKeyOf(place, record), { record, recordedAt });
  }
  if (folded.size !== header.count || rest.length !== header.count) {
    throw new UnreadableRecord(
      key,
      `it has ${folded.size} episodes, but its first line says ${header.count}`,
    );
  }
  return folded;
}

function decodeLine(where: string, line: Uint8Array): StoredEpisode {
  const { episode, recorded_at, ...unknown } = (parse(where, line) ?? {}) as Record<string, unknown>;
  const recordedAt = new Date(typeof recorded_at === 'string' ? recorded_at : NaN);
  if (Number.isNaN(recordedAt.getTime()) || Object.keys(unknown).length > 0) {
    throw new UnreadableRecord(where, 'it must have the members episode and recorded_at (a time)');
  }
  return { record: checkRecord(where, 'episode', episode), recordedAt };
}

/** The file's lines, as bytes: a file may be larger than the longest string. */
function linesOf(bytes: Uint8Array): Uint8Array[] {
  const lines: Uint8Array[] = [];
  for (let start = 0; start < bytes.length;) {
    const found = bytes.indexOf(newline, start);
    const end = found === -1 ? bytes.length : found;
    lines.push(bytes.subarray(start, end));
    start = end + 1;
  }
  return lines;
}
