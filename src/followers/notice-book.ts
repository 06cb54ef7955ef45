// Keeps the notices of one run in the store as its followers have them: a record at each change, at most as fast as people read.
import type { NoticeRecord } from '../spec/records/run-records.js';
import { readNotices, type Trouble, troublesOf, writeNotice } from '../store/runs/notices.js';
import type { ObjectStore } from '../store/objects/object-store.js';

/** Least pause between two records of one tracker: a trouble that comes and goes is not recorded each time. */
const leastPauseMs = 60_000;

export interface NoticeBookOptions {
  store: ObjectStore;
  run: string;
  /** The writer's name, for people. */
  by: string;
  /** Removes secrets. */
  clean: (text: string) => string;
  leastPauseMs?: number;
}

export class NoticeBook {
  private readonly options: NoticeBookOptions;
  private readonly held = new Map<string, Trouble | null>();
  private readonly written = new Map<string, number>();
  private known: NoticeRecord[] | null = null;
  private turn: Promise<void> = Promise.resolve();

  constructor(options: NoticeBookOptions) {
    this.options = options;
  }

  /** Null: the tracker has caught up. */
  set(sink: string, trouble: Trouble | null): void {
    this.held.set(sink, trouble);
  }

  /** Writes what is due; all of it the `last` time. What the store refuses is written the next time. */
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
      // Another author's record came first: read again the next time.
      this.known = record.n === this.known.length + 1 ? [...this.known, record] : null;
      this.written.set(sink, performance.now());
      if (this.known === null) return;
    }
  }
}
