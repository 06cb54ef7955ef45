// The loop that follows one run for one tracker: reads the points that the tracker lacks from the records, and delivers them in order. It
// may lag, die and restart; no step and no other tracker waits for it. Every wait has a deadline.
import { Backoff } from '../../base/backoff.js';
import {
  type Delivered,
  type MetricPoint,
  type PointSink,
  SinkRefused,
} from '../../integrations/tracking/metric-point.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { pause, within } from './deadlines.js';
import { type DroppedNotice, type FollowerNotes, readNotes, writeNotes } from './follower-notes.js';
import { MetricPoints } from './metric-points.js';

export interface FollowerTimes {
  /** Pauses between two reads of the records that found nothing new; they grow from `first` to `longest`. */
  pollMs: [first: number, longest: number];
  /** Pauses between attempts while a tracker fails; they grow in the same way. */
  retryMs: [first: number, longest: number];
  /** Pause between attempts while a tracker waits for a person. */
  refusedMs: number;
  readMs: number;
  openMs: number;
  writeMs: number;
  closeMs: number;
  /** How long after the run's end an unreachable tracker is still tried. */
  lastTryMs: number;
}

export const usualTimes: FollowerTimes = {
  pollMs: [1_000, 15_000],
  retryMs: [1_000, 60_000],
  refusedMs: 600_000,
  readMs: 60_000,
  openMs: 120_000,
  writeMs: 60_000,
  closeMs: 60_000,
  lastTryMs: 900_000,
};

export interface FollowerOptions {
  store: ObjectStore;
  run: string;
  sink: PointSink;
  /** Folder on this machine for the notes of all followers. */
  folder: string;
  /** True once the run writes no more records. Called before each read of the records. */
  isOver: () => boolean | Promise<boolean>;
  /** Stops the follower where it is; a later one continues. */
  signal: AbortSignal;
  /** With `isOver` true: delivers only the points that exist now, without reading the whole run once more. */
  brief?: boolean;
  times?: Partial<FollowerTimes>;
  /** Called with a notice when the tracker falls behind for a new reason, and with null when it has caught up. */
  onNotice?: (notice: DroppedNotice | null) => void;
  /** Called after each delivery. */
  onDelivered?: (points: readonly MetricPoint[]) => void;
}

export interface FollowerEnd {
  /** `delivered`: the run is over, and the tracker has all its points. */
  how: 'delivered' | 'given_up' | 'stopped';
  step: number | null;
  notice: DroppedNotice | null;
}

/** Throws no errors of a tracker or the store: they go into the notes, and the work is tried again. */
export async function follow(options: FollowerOptions): Promise<FollowerEnd> {
  return new Follower(options, { ...usualTimes, ...options.times }).run();
}

class RecordsUnread extends Error {
  override name = 'RecordsUnread';

  constructor(cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

function asUnread(error: unknown): never {
  throw new RecordsUnread(error);
}

class Follower {
  private reader: MetricPoints | null = null;
  private notes: FollowerNotes;
  private delivered: Delivered | null = null;
  /** True once this follower has looked for evaluations that were stored while nobody followed the run. */
  private looked = false;
  private idleMs: number;
  private readonly pauses: Backoff;
  private overSince: number | null = null;

  constructor(
    private readonly options: FollowerOptions,
    private readonly times: FollowerTimes,
  ) {
    const { run, sink } = options;
    this.notes = { run, sink: sink.name, step: null, totals: null, notice: null };
    [this.idleMs] = times.pollMs;
    this.pauses = new Backoff(times.retryMs);
  }

  async run(): Promise<FollowerEnd> {
    const { folder, run, sink, signal } = this.options;
    const read = (): Promise<FollowerNotes> => readNotes(folder, run, sink.name);
    this.notes = await within(this.times.readMs, 'the notes', read, signal).catch(() => this.notes);
    while (!signal.aborted) {
      const end = await this.round();
      if (end) return end;
    }
    await this.closeSink();
    return this.end('stopped');
  }

  /** Delivers one batch of points, or waits once. */
  private async round(): Promise<FollowerEnd | null> {
    const { sink, signal } = this.options;
    const { times } = this;
    try {
      // Asked before the read, so that the read misses no record of a run that is over.
      const over = await this.isOver();
      this.delivered ??= await within(times.openMs, `${sink.name} to open`, (own) => sink.open(own), signal);
      const next = await this.read(this.delivered, over);
      if (next.length > 0) await this.handOver(this.delivered, next);
      else if (over) return await this.finish(this.delivered);
      else await this.idle();
      return null;
    } catch (error) {
      if (signal.aborted) return null;
      return this.failed(error);
    }
  }

  private async isOver(): Promise<boolean> {
    const { isOver, signal } = this.options;
    const ask = (): Promise<boolean> =>
      within(this.times.readMs, 'whether the run is over', async () => isOver(), signal);
    const over = await ask().catch(asUnread);
    if (!over) this.overSince = null;
    else this.overSince ??= Date.now();
    return over;
  }

  private async read(delivered: Delivered, over: boolean): Promise<MetricPoint[]> {
    const { store, run, signal } = this.options;
    const { readMs, lastTryMs } = this.times;
    const reader = (this.reader ??= new MetricPoints(store, run, this.notes.totals));
    const read = (limitMs: number, what: () => Promise<MetricPoint[]>): Promise<MetricPoint[]> =>
      within(limitMs, `the records of ${run}`, what, signal).catch(asUnread);
    const next = await read(readMs, () => reader.next(delivered));
    if (next.length > 0) return next;
    if (over && this.options.brief) return [];
    // At the end the whole run is read once more, so this read gets a longer limit.
    if (over) return read(lastTryMs, () => reader.missed(delivered));
    if (this.looked) return [];
    const overdue = await read(readMs, () => reader.overdue(delivered));
    this.looked = true;
    return overdue;
  }

  private async handOver(delivered: Delivered, points: readonly MetricPoint[]): Promise<void> {
    const { sink, signal, onDelivered } = this.options;
    const { writeMs } = this.times;
    await within(
      writeMs,
      `${sink.name} to take ${points.length} points`,
      (own) => sink.write(points, own),
      signal,
    );
    for (const { id } of points) delivered.add(id);
    [this.idleMs] = this.times.pollMs;
    this.pauses.reset();
    onDelivered?.(points);
    await this.note(delivered, null);
  }

  private async idle(): Promise<void> {
    this.pauses.reset();
    if (this.notes.notice && this.delivered) await this.note(this.delivered, null);
    await pause(this.idleMs, this.options.signal);
    this.idleMs = Math.min(this.idleMs * 1.5, this.times.pollMs[1]);
  }

  /** A tracker that lost delivered points throws when it closes; then it is opened again and receives what is missing. */
  private async finish(delivered: Delivered): Promise<FollowerEnd> {
    const { sink, signal } = this.options;
    await within(this.times.closeMs, `${sink.name} to close`, (own) => sink.close(own), signal);
    this.delivered = null;
    await this.note(delivered, null);
    return this.end('delivered');
  }

  private async failed(error: unknown): Promise<FollowerEnd | null> {
    await this.note(this.delivered, error instanceof Error ? error.message : String(error));
    // If the records could not be read, the tracker did not fail, so it stays open.
    if (!(error instanceof RecordsUnread)) {
      await this.closeSink();
      this.delivered = null;
    }
    const left = this.overSince === null ? Infinity : this.overSince + this.times.lastTryMs - Date.now();
    if (left <= 0) return this.end('given_up');
    const waitMs = error instanceof SinkRefused ? this.times.refusedMs : this.pauses.next();
    await pause(Math.min(waitMs, left), this.options.signal);
    return null;
  }

  /** Ignores errors, because `open` starts from the beginning. */
  private async closeSink(): Promise<void> {
    const { sink } = this.options;
    const none = new AbortController().signal;
    await within(this.times.closeMs, `${sink.name} to close`, (own) => sink.close(own), none).catch(
      () => undefined,
    );
  }

  /** `reason`: why the tracker is behind; null if it is not. A disk that refuses the note, or hangs, delays no point. */
  private async note(delivered: Delivered | null, reason: string | null): Promise<void> {
    const { folder, sink, signal, onNotice } = this.options;
    const before = this.notes.notice;
    const step = delivered?.step ?? this.notes.step;
    const notice: DroppedNotice | null =
      reason === null
        ? null
        : {
            sink: sink.name,
            what: step === null ? 'all points' : `points behind step ${step}`,
            reason,
            since: before?.since ?? new Date().toISOString(),
          };
    const totals = (delivered && this.reader?.totalsAfter(delivered)) ?? this.notes.totals;
    this.notes = { ...this.notes, step, totals, notice };
    if (notice?.reason !== before?.reason) onNotice?.(notice);
    const write = (): Promise<void> => writeNotes(folder, this.notes);
    await within(this.times.writeMs, 'the notes', write, signal).catch(() => undefined);
  }

  private end(how: FollowerEnd['how']): FollowerEnd {
    const { step, notice } = this.notes;
    return { how, step, notice };
  }
}
