// The page's index of all transcripts. It is enough to filter and list transcripts before any of them is loaded. Rows are numbers, so
// 10,000 of them take some hundred kilobytes.
import type { EpisodeSource } from '../history/episode-selection.js';
import type { FinishedChunk } from './transcript-chunks.js';
import type { Transcript, Verdict } from './transcripts.js';

const verdicts: readonly Verdict[] = ['fail', 'unknown', 'pass'];
/** In this order; the viewer has labels for them in the same order. */
const stopReasons = ['done', 'max_turns', 'length', 'unknown', 'ended'] as const;

/** [place, slot, sample, task, verdict, stop reason, turns, marks, chunk, index in the chunk] */
type TranscriptRow = [number, number, number, number, number, number, number, number, number, number];

export interface TranscriptIndex {
  /** Folder of the chunk files, beside the page. */
  folder: string;
  /** Evaluations and training steps: [name, step, 1 if it is the newest evaluation, else 0]. */
  places: [name: string, step: number, newest: 0 | 1][];
  environments: string[];
  /** [key, index of the environment, request, cut to `requestChars`]. */
  tasks: [key: string, environment: number, request: string][];
  chunks: string[];
  rows: TranscriptRow[];
}

const requestChars = 110;

export class IndexWriter {
  readonly index: TranscriptIndex;
  private readonly environments = new Map<string, number>();
  private readonly tasks = new Map<string, number>();

  constructor(folder: string) {
    this.index = { folder, places: [], environments: [], tasks: [], chunks: [], rows: [] };
  }

  /** Rows that are added from now on belong to this source. */
  open(source: EpisodeSource): void {
    const isNewest = source.kind === 'evaluation' && source.isNewest;
    this.index.places.push([source.name, source.step, isNewest ? 1 : 0]);
  }

  add(transcript: Transcript, marks: number, { chunk, at }: { chunk: number; at: number }): void {
    const { env_key, task_key, slot, sample, verdict, stop_reason, turns, request } = transcript;
    const environment = placeOf(this.environments, env_key, () => this.index.environments.push(env_key));
    const task = placeOf(this.tasks, JSON.stringify([env_key, task_key]), () =>
      this.index.tasks.push([task_key, environment, cut(request)]),
    );
    this.index.rows.push([
      ...([this.index.places.length - 1, slot, sample, task] as const),
      ...([
        verdicts.indexOf(verdict),
        stopReasons.indexOf(stop_reason as 'done'),
        turns,
        marks,
        chunk,
        at,
      ] as const),
    ]);
  }

  addChunk({ name }: FinishedChunk): void {
    this.index.chunks.push(name);
  }
}

/** A transcript's name in the page's address: `final.120.3.0` is sample 0 of task 3 in the evaluation `final` after step 120. */
export function transcriptId(
  source: Pick<EpisodeSource, 'name' | 'step'>,
  slot: number,
  sample: number,
): string {
  return `${source.name}.${source.step}.${slot}.${sample}`;
}

function placeOf(known: Map<string, number>, key: string, add: () => number): number {
  const place = known.get(key) ?? add() - 1;
  known.set(key, place);
  return place;
}

function cut(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= requestChars ? line : `${line.slice(0, requestChars - 1)}…`;
}
