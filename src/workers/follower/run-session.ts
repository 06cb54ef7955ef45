// All followers of one run, from one of its starts to its end: its trackers, its Slack thread, and the notices of what trackers and thread
// lack.
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { Link } from '../../integrations/slack/run-event.js';
import type { RunFigures } from '../../integrations/tracking/prometheus.js';
import { createTrackers } from '../../integrations/tracking/trackers.js';
import type { PointSink } from '../../integrations/tracking/metric-point.js';
import type { Digest } from '../../spec/records/parts.js';
import type { OwnerRecord, RunRecord } from '../../spec/records/run-records.js';
import type { SlackSpec, TrackingSpec } from '../../spec/run-spec.js';
import { sha256Hex } from '../../base/sha256.js';
import { runKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import type { Trouble } from '../../store/runs/notices.js';
import { readOwner } from '../../store/runs/owners.js';
import { readRun } from '../../store/runs/run-records.js';
import { pause, within } from './deadlines.js';
import { follow, type FollowerEnd, type FollowerTimes, usualTimes } from './follower.js';
import { readIfWhole, replaceFile } from './follower-notes.js';
import { NoticeBook } from './notice-book.js';
import { discreet, type RunStanding } from './run-watch.js';

/** Settings that the follower process uses for all runs. */
export interface SessionSettings {
  store: ObjectStore;
  /** The follower's own folder. */
  folder: string;
  /** Null: no metrics are served. */
  figures: RunFigures | null;
  /** Python interpreter that has the package `wandb`. */
  wandbPython: string;
  wandbKey: () => string | undefined;
  slackToken: () => string | undefined;
  slackTokenName: string;
  slackUrl?: string;
  /** A fault of the follower itself, which affects all runs; `trouble` is null if there is none. */
  trouble: () => { sink: string; trouble: Trouble | null };
  /** The notices' author, for people. */
  by: string;
  clean: (text: string) => string;
  log: (line: string) => void;
  times?: Partial<FollowerTimes>;
}

export interface SessionOptions extends SessionSettings {
  run: string;
  links: Link[];
  standing: () => RunStanding;
  signal: AbortSignal;
}

const openWithinMs = 60_000;
const flushWithinMs = 10_000;
const writeNoticesEveryMs = 5_000;
/** Used if the spec has no `tracking`. */
const usualTracking: TrackingSpec = { metrics_jsonl: true, tensorboard: false };
/** Sinks that write files on this machine: they can be completed in the moment before the process ends. */
const localSinks: readonly string[] = ['metrics.jsonl', 'tensorboard'];

/** `lacking`: a sink was given up; a later call may deliver the rest. */
type SessionEnd = 'delivered' | 'lacking' | 'stopped';

/**
 * Resolves when the run is over and every sink has all its points or was given up, or when `signal` aborts. Throws only if the run's
 * records cannot be read at the beginning.
 */
export async function followRun(options: SessionOptions): Promise<SessionEnd> {
  const { store, run, folder, signal } = options;
  const opened = await open(store, run);
  await setOthersAside(folder, run, opened.digest);
  const sinks = sinksOf(options, opened);
  const { by, clean } = options;
  const book = new NoticeBook({ store, run, by, clean });
  const done = new AbortController();
  const writing = writeNotices(book, options, done.signal);
  let ends: boolean[];
  try {
    ends = await Promise.all([
      ...sinks.map(async (sink) => (await followWith(sink, options, book)).how === 'delivered'),
      ...(opened.slack ? [followInSlack(opened.slack, opened, options, book)] : []),
    ]);
    if (ends.length === 0) await untilOver(options);
  } finally {
    done.abort();
    await writing;
    await withinLimit(book.flush(true));
  }
  if (signal.aborted) return 'stopped';
  const isWhole = ends.every(Boolean);
  const received = isWhole ? 'every tracker and channel has' : 'a tracker or channel does not have';
  if (ends.length > 0) options.log(`${run}: ${received} everything`);
  return isWhole ? 'delivered' : 'lacking';
}

/** Writes the committed steps to the files on this machine, just before the process ends. */
export async function catchUp(options: SessionOptions): Promise<void> {
  const { store, run, folder, signal } = options;
  const opened = await within(openWithinMs, `the records of ${run}`, () => open(store, run), signal);
  const sinks = sinksOf({ ...options, figures: null }, opened).filter(({ name }) =>
    localSinks.includes(name),
  );
  const isOver = (): boolean => true;
  await Promise.all(
    sinks.map((sink) =>
      follow({ store, run, sink, folder: notesFolder(folder), isOver, signal, brief: true }),
    ),
  );
}

interface OpenedRun {
  record: RunRecord;
  owner: OwnerRecord;
  /** Digest of `run.json`, unique to the run. */
  digest: Digest;
  tracking: TrackingSpec;
  slack: SlackSpec | undefined;
}

async function open(store: ObjectStore, run: string): Promise<OpenedRun> {
  const [record, owner, bytes] = await Promise.all([
    readRun(store, run),
    readOwner(store, run),
    store.get(runKey(run)),
  ]);
  if (!owner || !bytes) throw new Error(`no workflow drives ${run} yet`);
  const { tracking = usualTracking, slack } = owner.observed;
  return { record, owner, digest: sha256Hex(bytes), tracking, slack };
}

const notesFolder = (folder: string): string => join(folder, 'notes');
const trackingFolder = (folder: string): string => join(folder, 'tracking');

/** Renames the files of another run with the same name: that run is in another store, or was in this store before it was emptied. */
async function setOthersAside(folder: string, run: string, digest: Digest): Promise<void> {
  const file = join(notesFolder(folder), run, 'identity.json');
  const before = (await readIfWhole(file)) as { digest?: unknown } | null;
  if (typeof before?.digest === 'string' && before.digest !== digest) {
    const tracking = trackingFolder(folder);
    const places = [tracking, join(tracking, 'tensorboard'), join(tracking, 'wandb'), notesFolder(folder)];
    for (const place of places) {
      const aside = join(place, `${run}@${before.digest.slice(0, 12)}`);
      await rename(join(place, run), aside).catch(ignoreMissing);
    }
  }
  if (before?.digest !== digest) await replaceFile(file, { digest });
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}

function sinksOf(options: SessionOptions, { record, tracking }: OpenedRun): PointSink[] {
  const { folder, figures, wandbPython, wandbKey } = options;
  const { run, spec, observed } = record;
  const { metrics_jsonl, tensorboard, wandb } = tracking;
  return createTrackers(
    {
      folder: trackingFolder(folder),
      metricsJsonl: metrics_jsonl,
      tensorboard,
      ...(wandb ? { wandb: { ...wandb, python: wandbPython, apiKey: wandbKey } } : {}),
      ...(figures ? { figures } : {}),
    },
    { run, project: spec.project, startedAt: observed.started_at, config: { ...spec } },
  );
}

function followWith(sink: PointSink, options: SessionOptions, book: NoticeBook): Promise<FollowerEnd> {
  const { store, run, folder, signal, figures, standing, log, times } = options;
  return follow({
    ...{ store, run, sink, signal, ...(times ? { times } : {}) },
    folder: notesFolder(folder),
    isOver: () => standing().over,
    onNotice: (notice) => {
      figures?.showFollower(run, sink.name, { step: null, failing: notice !== null });
      book.set(sink.name, notice);
      log(`${run}: ${sink.name} ${notice ? `lacks ${notice.what}: ${notice.reason}` : 'has caught up'}`);
    },
    onDelivered: (points) =>
      figures?.showFollower(run, sink.name, {
        step: points.reduce((last, { step }) => Math.max(last, step), 0),
        failing: false,
      }),
  });
}

/** Waits for the end of a run without followers: opening it again would find nothing new. */
async function untilOver({ standing, signal, times }: SessionOptions): Promise<void> {
  const [pollMs] = times?.pollMs ?? usualTimes.pollMs;
  while (!standing().over && !signal.aborted) await pause(pollMs, signal);
}

async function followInSlack(
  slack: SlackSpec,
  opened: OpenedRun,
  options: SessionOptions,
  book: NoticeBook,
): Promise<boolean> {
  // Imported only when needed: Slack's client and the chart renderer take 60 MB, and most runs have no channel.
  const { reportInSlack } = await import('./slack-reporter.js');
  const { store, run, folder, figures, links, signal, log, clean } = options;
  const { slackToken: token, slackTokenName: tokenName, slackUrl } = options;
  const { record, owner, digest } = opened;
  let failing = false;
  let reported: string | null = null;
  return reportInSlack({
    ...{ store, record, owner, slack, token, tokenName, links, signal },
    standing: () => discreet(options.standing(), clean),
    ...(options.times?.lastTryMs === undefined ? {} : { times: { lastTryMs: options.times.lastTryMs } }),
    ...(slackUrl === undefined ? {} : { apiUrl: slackUrl }),
    key: sha256Hex(Buffer.from(`${store.address} ${digest}`)),
    folder: join(notesFolder(folder), run),
    log: (line) => log(`${run}: ${line}`),
    onTrouble: (trouble) => {
      failing = trouble !== null;
      const reason = trouble?.reason ?? null;
      if (reason !== reported)
        log(`${run}: slack ${trouble ? `lacks ${trouble.what}: ${trouble.reason}` : 'has caught up'}`);
      reported = reason;
      figures?.showFollower(run, 'slack', { step: null, failing });
      book.set('slack', trouble);
    },
    onReported: (step) => figures?.showFollower(run, 'slack', { step, failing }),
  });
}

async function writeNotices(book: NoticeBook, options: SessionOptions, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const own = options.trouble();
    book.set(own.sink, own.trouble);
    await pause(writeNoticesEveryMs, signal);
    // Records that the store refuses now are written later.
    await withinLimit(book.flush());
  }
}

/** Limits a write: a disk that hangs, such as a network disk, must not delay the end of a session. Never throws. */
async function withinLimit(flush: Promise<void>): Promise<void> {
  const signal = new AbortController().signal;
  await within(flushWithinMs, 'the store to take notices', () => flush, signal).catch(() => undefined);
}
