// Reads a run's episodes once, for the report: counts how they went and writes their transcripts to files. Memory holds the records of a
// few steps, one open chunk of transcripts and a row of numbers for each episode.
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { EpisodeRecord } from '../spec/records/episode.js';
import { readEvaluationEpisodes, readStepEpisodes } from '../store/runs/episodes.js';
import { inParallel } from '../base/in-parallel.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { UnreadableRecord } from '../store/record-errors.js';
import { selectEpisodes, type EpisodeSource } from './history/episode-selection.js';
import type { RunHistory } from './history/run-history.js';
import {
  addGroup,
  addTrajectory,
  noTrajectories,
  plusTrajectories,
  type TrajectoryCounts,
} from './transcripts/trajectory-analysis.js';
import type { TrajectoryAnalysis } from './transcripts/trajectory-table.js';
import { trajectoryPoint, type TrajectoryPoint } from './charts/trajectory-trends.js';
import { trajectoryOf } from './transcripts/trajectory.js';
import { chunkScript, ChunkWriter, type FinishedChunk } from './transcripts/transcript-chunks.js';
import { IndexWriter, transcriptId } from './transcripts/transcript-index.js';
import type { ShownTranscripts } from './transcripts/transcript-viewer.js';
import { type TranscriptCoder, transcriptReader } from './transcripts/transcripts.js';

export interface EpisodeReading {
  limit: number;
  coder: TranscriptCoder;
  /** Name of the folder of transcripts beside the page. */
  folder: string;
  /** Receives the file `{name}.js` of that folder. The same name always has the same content. */
  keep: (name: string, text: string) => Promise<void>;
  /** Characters of transcripts in the page itself. */
  embeddedChars?: number;
}

export interface ReadEpisodes {
  analysis: TrajectoryAnalysis;
  points: TrajectoryPoint[];
  shown: ShownTranscripts;
}

/** Sources begin with the newest evaluation, so that a page without its folder still has that evaluation’s transcripts. */
const charsInPage = 1_000_000;
/** Episodes held in memory at once. A single source with more episodes is still read as a whole. */
const heldEpisodes = 256;
/** The event loop also serves other work, so reading blocks it for at most this long. */
const stretchMs = 20;

/** Throws `StoreUnavailable`. Unreadable records are left out and reported. */
export async function readReportEpisodes(
  store: ObjectStore,
  history: RunHistory,
  { limit, coder, folder, keep, embeddedChars = charsInPage }: EpisodeReading,
): Promise<ReadEpisodes> {
  const selection = selectEpisodes(history, limit);
  const toTranscript = transcriptReader(coder);
  const written = new IndexWriter(folder);
  const embedded: FinishedChunk[] = [];
  let room = embeddedChars;
  const chunks = new ChunkWriter(async (chunk) => {
    written.addChunk(chunk);
    if (chunk.content.length <= room) {
      room -= chunk.content.length;
      embedded.push(chunk);
      return;
    }
    // All later chunks are written beside the page, so that the page holds the first chunks without a gap.
    room = 0;
    await keep(chunk.name, chunkScript(chunk));
  });
  const points: TrajectoryPoint[] = [];
  const unreadable: string[] = [];
  const analysis: TrajectoryAnalysis = { training: new Map(), newest: new Map(), newestName: null };
  let before: EpisodeSource | null = null;
  let begun = performance.now();

  for (const sources of heldTogether(selection.sources)) {
    const read = await inParallel(sources, (source) => readOrSay(store, source));
    for (const [index, source] of sources.entries()) {
      const episodes = read[index];
      if (episodes === undefined || typeof episodes === 'string') {
        unreadable.push(`${placeText(source)}: ${episodes ?? 'nothing was read'}`);
        continue;
      }
      // End the chunk before the first training step. Episodes of committed steps never change, so a chunk with only training steps stays
      // the same in the next report.
      if (before?.kind === 'evaluation' && source.kind === 'training') await chunks.finish();
      before = source;
      written.open(source);
      const counted = new Map<string, TrajectoryCounts>();
      const groups = new Map<number, { env: string; values: (number | null)[] }>();
      for (const episode of episodes) {
        const transcript = toTranscript(episode);
        const id = transcriptId(source, episode.slot, episode.sample);
        const counts = entryOf(counted, episode.env_key, noTrajectories);
        const found = addTrajectory(counts, trajectoryOf(id, episode, transcript));
        written.add(transcript, found, await chunks.add(transcript));
        const value = episode.outcome.status === 'graded' ? episode.outcome.value : null;
        entryOf(groups, episode.slot, () => ({ env: episode.env_key, values: [] })).values.push(value);
        if (performance.now() - begun < stretchMs) continue;
        await nextTurn();
        begun = performance.now();
      }
      for (const { env, values } of groups.values()) addGroup(entryOf(counted, env, noTrajectories), values);
      if (source.kind === 'training') {
        merge(analysis.training, counted);
        const all = [...counted.values()].reduce(plusTrajectories, noTrajectories());
        if (all.episodes > 0) points.push(trajectoryPoint(source.step, all));
      } else if (source.isNewest) {
        merge(analysis.newest, counted);
        analysis.newestName = placeText(source);
      }
    }
  }
  await chunks.finish();
  return { analysis, points, shown: { index: written.index, selection, embedded, unreadable } };
}

function* heldTogether(sources: readonly EpisodeSource[]): Iterable<EpisodeSource[]> {
  let held: EpisodeSource[] = [];
  let episodes = 0;
  for (const source of sources) {
    if (held.length > 0 && episodes + source.episodes > heldEpisodes) {
      yield held;
      [held, episodes] = [[], 0];
    }
    held.push(source);
    episodes += source.episodes;
  }
  if (held.length > 0) yield held;
}

async function readOrSay(store: ObjectStore, source: EpisodeSource): Promise<EpisodeRecord[] | string> {
  try {
    if (source.kind === 'evaluation') return await readEvaluationEpisodes(store, source.figure);
    return await readStepEpisodes(store, source.run, source.step);
  } catch (error) {
    if (error instanceof UnreadableRecord) return error.message;
    throw error;
  }
}

function placeText({ kind, name, step }: EpisodeSource): string {
  return kind === 'training' ? `training step ${step}` : `the ${name} evaluation after step ${step}`;
}

function merge(into: Map<string, TrajectoryCounts>, from: ReadonlyMap<string, TrajectoryCounts>): void {
  for (const [name, counts] of from) {
    const known = into.get(name);
    into.set(name, known ? plusTrajectories(known, counts) : counts);
  }
}

function entryOf<Key, Value>(map: Map<Key, Value>, key: Key, make: () => Value): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
