// Keeps the current notices of one run's followers in the store: one record for each change, written no faster than people can read.
import type { NoticeRecord } from '../../spec/records/run-records.js';
import { readNotices, type Trouble, troublesOf, writeNotice } from '../../store/runs/notices.js';
import type { ObjectStore } from '../../store/objects/object-store.js';

/** Shortest time between two records of one tracker, so that a problem that comes and goes is not recorded each time. */
const leastPauseMs = 60_000;

interface NoticeBookOptions {
  store: ObjectStore;
  run: string;
  /** Name of the author, for people. */
  by: string;
  /** Removes secrets. */
  clean: (text: string) => string;
  leastPauseMs?: number;
}

export class NoticeBook {
  private readonly held = new Map<string, Trouble | null>();
  private readonly written = new Map<string, number>();
  private known: NoticeRecord[] | null = null;
  private turn: Promise<void> = Promise.resolve();

  constructor(private readonly options: NoticeBookOptions) {}

  /** Sets the notice of a tracker; null if it has caught up. */
  set(sink: string, trouble: Trouble | null): void {
    this.held.set(sink, trouble);
  }

  /** Writes the records that are due, or with `last` all of them. A record that the store refuses is written at the next call. */
  flush(last = false): Promise<void> {
    this.turn = this.turn.catch(() => undefined).then(() => this.flushNow(last));
    return this.turn;
  }

  private async flushNow(last: boolean): Promise<void> {
    const { store, run, by, clean, leastPauseMs: pauseMs = leastPauseMs } = this.options;
    this.known ??= await readNotices(store, run);
    const stored = troublesOf(this.known);
    for (const [sink, trouble] of this.held) {
      const before = stored.get(sink) ?? null;
      const now = trouble && { what: trouble.what, reason: clean(trouble.reason), since: trouble.since };
      if (before?.what === now?.what && before?.reason === now?.reason) continue;
      const writtenAt = this.written.get(sink);
      if (!last && writtenAt !== undefined && performance.now() - writtenAt < pauseMs) continue;
      const record = await writeNotice(store, run, { sink, trouble: now, by }, this.known);
      // Another author's record took this number; both are read at the next call.
      this.known = record.n === this.known.length + 1 ? [...this.known, record] : null;
      this.written.set(sink, performance.now());
      if (this.known === null) return;
    }
  }
}
