// Reads and checks the record of an episode; and watches for that record while the episode is played.
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { requireRecord } from '../../store/records/records.js';
import { UnreadableRecord } from '../../store/record-errors.js';
import { type Patience, waitOutStore } from '../attempt/store-patience.js';

/** Throws `UnreadableRecord` if the record is missing, or names another plan or state (R8). */
export async function requireEpisode(
  store: ObjectStore,
  key: string,
  source: Pick<EpisodeRecord, 'plan' | 'state'>,
): Promise<EpisodeRecord> {
  const episode = await requireRecord(store, key, 'episode');
  for (const member of ['plan', 'state'] as const) {
    if (episode[member] === source[member]) continue;
    throw new UnreadableRecord(
      key,
      `it was played for ${member} ${episode[member]}, not for ${source[member]}` +
        // The command for an evaluation's record needs its run, which is not known here.
        (key.startsWith('runs/') ? `; set it aside with: longhaul quarantine ${key}` : ''),
    );
  }
  return episode;
}

/** Thrown when another worker has finished the episode. */
export class FinishedElsewhere extends Error {}

/** Milliseconds. If the last look is older, for example because the process was suspended, the process looks again before it samples. */
export const freshMs = 2000;

/**
 * Remembers when the store was last seen to have no record of an episode. Sampling stops when another worker has finished the episode (R9).
 */
export class Unfinished {
  /** On the wall clock, which continues while the machine is suspended. */
  private at: number | null = null;

  constructor(
    private readonly store: ObjectStore,
    private readonly key: string,
    private readonly patience: Patience,
  ) {}

  /** Looks for the record, unless the last look is at most `ms` old. Throws `FinishedElsewhere` if there is a record. */
  async within(ms: number): Promise<void> {
    for (let isFresh = this.isWithin(ms); !isFresh; isFresh = this.isWithin(freshMs)) {
      this.patience.signal.throwIfAborted();
      const askedAt = Date.now();
      if (await waitOutStore(() => this.store.head(this.key), this.patience)) throw new FinishedElsewhere();
      this.at = askedAt;
    }
  }

  private isWithin(ms: number): boolean {
    return this.at !== null && Math.abs(Date.now() - this.at) <= ms && ms > 0;
  }
}

const longest = 500;
const unprintable = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}]+/gu;

/** An environment's text as people read it in the record: at most 500 printable characters on one line, and no control characters. */
export function recordedText(text: string): string {
  // Cut first, because a server may send megabytes; later characters cannot be among the first 500.
  const characters = [
    ...text
      .slice(0, 20 * longest)
      .replace(unprintable, ' ')
      .replace(/\s+/g, ' ')
      .trim(),
  ];
  return characters.length <= longest ? characters.join('') : `${characters.slice(0, longest - 1).join('')}…`;
}
