// The loop that reports one run in its Slack thread: reads events from the records, with a cursor, and delivers them one by one. A message
// may take a quarter of an hour; no other part of the follower waits for it.
import { join } from 'node:path';
import { drawChart } from '../../integrations/slack/chart-picture.js';
import type { Link, RunEvent, RunStarted, RunStatusLine } from '../../integrations/slack/run-event.js';
import { RunThread, type ThreadTiming } from '../../integrations/slack/run-thread.js';
import type { PassRate } from '../../spec/pass-rate.js';
import type { OwnerRecord, RunRecord } from '../../spec/records/run-records.js';
import type { SlackNews, SlackSpec } from '../../spec/run-spec.js';
import { plannedSteps } from '../../spec/schedule.js';
import { sha256Hex } from '../../base/sha256.js';
import type { Trouble } from '../../store/runs/notices.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { pause, within } from './deadlines.js';
import { readIfWhole, replaceFile } from './follower-notes.js';
import {
  type EventContext,
  type EventCursor,
  newEventCursor,
  readRunEvents,
  spendOf,
  targetNote,
  type ReportedEvaluation,
} from './run-events.js';
import type { RunStanding } from './run-watch.js';

interface SlackReporterOptions {
  store: ObjectStore;
  record: RunRecord;
  owner: OwnerRecord;
  slack: SlackSpec;
  /** The token; undefined if the environment does not set it. */
  token: () => string | undefined;
  tokenName: string;
  /** API address; absent for Slack's own. */
  apiUrl?: string;
  /** Unique to this run among all runs that write to the channel. */
  key: string;
  /** Folder of this run alone, for the cursor and the thread's file. */
  folder: string;
  links: Link[];
  standing: () => RunStanding;
  signal: AbortSignal;
  log: (line: string) => void;
  onTrouble: (trouble: Trouble | null) => void;
  onReported: (step: number | null) => void;
  timing?: Partial<ThreadTiming>;
  times?: Partial<ReporterTimes>;
}

interface ReporterTimes {
  pollMs: [first: number, longest: number];
  readMs: number;
  /** How long after its end a run without a token is still tried. */
  lastTryMs: number;
}

const usualTimes: ReporterTimes = { pollMs: [1_000, 15_000], readMs: 60_000, lastTryMs: 900_000 };
const lookAtTroubleMs = 5_000;

const newsOf: Partial<Record<RunEvent['kind'], SlackNews>> = {
  checkpoint: 'checkpoints',
  evaluation: 'evaluations',
  alert: 'alerts',
  paused: 'pauses',
  resumed: 'pauses',
  blocked: 'pauses',
  failing: 'pauses',
  completed: 'end',
  failed: 'end',
  cancelled: 'end',
};

interface Kept {
  schema: 'longhaul.slack-cursor/1';
  /** The thread's key, so that the cursor of another run with the same name is ignored. */
  key: string;
  cursor: EventCursor;
  started: RunStarted;
}

/**
 * Resolves when the run is over and each message was delivered or dropped by the thread; false if the thread did not take all of them.
 * Throws no errors of Slack, the store or the disk.
 */
export async function reportInSlack(options: SlackReporterOptions): Promise<boolean> {
  return new SlackReporter(options, { ...usualTimes, ...options.times }).run();
}

class SlackReporter {
  private cursor = newEventCursor;
  private started: RunStarted | null = null;
  private thread: RunThread | null = null;
  private shown: RunStatusLine | null = null;
  private trouble: Trouble | null = null;
  private overSince: number | null = null;
  /** True if the loop ended before it had delivered everything. */
  private lacking = false;
  private idleMs: number;

  constructor(
    private readonly options: SlackReporterOptions,
    private readonly times: ReporterTimes,
  ) {
    [this.idleMs] = times.pollMs;
  }

  async run(): Promise<boolean> {
    const { signal, onTrouble } = this.options;
    const kept = (await readIfWhole(this.cursorFile)) as Partial<Kept> | null;
    if (kept?.schema === 'longhaul.slack-cursor/1' && kept.key === this.options.key && kept.cursor) {
      this.cursor = { ...newEventCursor, ...kept.cursor };
      this.started = kept.started ?? null;
    }
    const watch = setInterval(() => onTrouble(this.look()), lookAtTroubleMs);
    try {
      while (!signal.aborted && !(await this.round()));
      return !signal.aborted && !this.lacking;
    } finally {
      clearInterval(watch);
      onTrouble(this.look());
    }
  }

  /** Reads and delivers one page; returns true at the end. */
  private async round(): Promise<boolean> {
    const { options, times } = this;
    const standing = options.standing();
    if (standing.over) this.overSince ??= Date.now();
    else this.overSince = null;
    if (!options.token()) return this.withoutToken();
    try {
      const page = await within(
        times.readMs,
        'the records',
        () => readRunEvents(options.store, options.record.run, this.cursor, this.context(standing)),
        options.signal,
      );
      const moved = page.cursor.step !== this.cursor.step || page.events.length > 0;
      await this.deliver(page.events);
      if (this.started === null) return standing.over || this.idle(false);
      if (moved) await this.keep(page.cursor);
      this.cursor = page.cursor;
      options.onReported(this.cursor.step);
      if (page.more) return false;
      await this.deliver(standstillOf(standing, page.cursor.step));
      await this.threadOf(this.started).showStatus(this.status(standing), standing.over ? 'now' : 'due');
      this.recordsUnread = null;
      return standing.over || this.idle(moved);
    } catch (error) {
      if (options.signal.aborted) return true;
      this.recordsUnread = error instanceof Error ? error.message : String(error);
      options.onTrouble(this.look());
      return (this.lacking = this.gaveUp()) || this.idle(false);
    }
  }

  private recordsUnread: string | null = null;

  private async withoutToken(): Promise<boolean> {
    this.options.onTrouble(this.look());
    return (this.lacking = this.gaveUp()) || this.idle(false);
  }

  private gaveUp(): boolean {
    return this.overSince !== null && Date.now() - this.overSince > this.times.lastTryMs;
  }

  private async deliver(events: readonly RunEvent[]): Promise<void> {
    const { slack } = this.options;
    for (const event of events) {
      if (event.kind === 'started') this.started = event;
      const news = newsOf[event.kind];
      if (news && slack.events && !slack.events.includes(news)) continue;
      if (this.started) await this.threadOf(this.started).deliver(event);
    }
  }

  private threadOf(started: RunStarted): RunThread {
    const { slack, token, tokenName, apiUrl, key, folder, signal, log, timing } = this.options;
    const file = join(folder, 'slack-thread.json');
    return (this.thread ??= new RunThread({
      access: {
        token: () => token() ?? '',
        tokenName,
        channel: slack.channel,
        ...(apiUrl === undefined ? {} : { apiUrl }),
      },
      started,
      key,
      state: { load: () => readIfWhole(file), save: (record) => replaceFile(file, record) },
      stop: signal,
      report: (line, standing) => {
        if (!standing) log(line);
      },
      ...(timing ? { timing } : {}),
    }));
  }

  /** Stores the cursor. Only after delivery: events before the stored cursor are never delivered again. */
  private async keep(cursor: EventCursor): Promise<void> {
    if (this.started === null) return;
    const { key } = this.options;
    const kept: Kept = { schema: 'longhaul.slack-cursor/1', key, cursor, started: this.started };
    await replaceFile(this.cursorFile, kept);
  }

  private get cursorFile(): string {
    return join(this.options.folder, 'slack-cursor.json');
  }

  private async idle(moved: boolean): Promise<false> {
    const [first, longest] = this.times.pollMs;
    this.idleMs = moved ? first : Math.min(this.idleMs * 1.5, longest);
    await pause(this.idleMs, this.options.signal);
    return false;
  }

  private context(standing: RunStanding): EventContext {
    const { record, links } = this.options;
    return {
      links,
      modality: 'tool_use',
      now: new Date().toISOString(),
      ending: standing.ending,
      chart: (evaluations) =>
        drawChart({ title: titleOf(record.run, evaluations), lines: linesOf(evaluations) }),
    };
  }

  /** Why the thread is behind now, in words; `since` is when this was first noticed. Null if it is not behind. */
  private look(): Trouble | null {
    const { token, tokenName, slack } = this.options;
    const since = this.trouble?.since ?? new Date().toISOString();
    const behind = this.cursor.step === null ? 'all messages' : `messages behind step ${this.cursor.step}`;
    const dropped = this.thread?.dropped ?? [];
    const last = dropped.at(-1);
    const as = (what: string, reason: string): Trouble => ({ what, reason, since });
    const noToken = `${tokenName} is not set where the follower runs: put the bot's token there, or remove slack from the run's spec`;
    const trouble = !token()
      ? as(behind, noToken)
      : this.thread?.trouble != null
        ? as(`${behind} in ${slack.channel}`, this.thread.trouble)
        : this.recordsUnread !== null
          ? as(behind, this.recordsUnread)
          : last
            ? as(`${dropped.length} ${dropped.length === 1 ? 'message' : 'messages'}, given up,`, last.reason)
            : null;
    this.trouble = trouble;
    return trouble;
  }

  private status(standing: RunStanding): RunStatusLine {
    const { record, owner } = this.options;
    const { cursor } = this;
    const steps = plannedSteps(record.spec).total;
    const step = cursor.step ?? record.lineage?.step ?? 0;
    const newest = cursor.evaluations.at(-1);
    const { ending, blocked } = standing;
    const phase = ending?.how ?? standing.phase ?? 'running';
    const waits = blocked !== null || phase === 'paused' || phase === 'blocked';
    const completed = ending?.how === 'completed' ? targetNote(record.spec, cursor) : null;
    const line: RunStatusLine = {
      at: this.shown?.at ?? new Date().toISOString(),
      step,
      steps,
      phase,
      mood: ending?.how ?? (waits ? 'waiting' : 'running'),
      passAt1: newest ? { step: newest.step, value: newest.passAt1 } : null,
      etaSeconds: ending || waits ? null : secondsLeft(cursor, steps - step),
      spend: spendOf(cursor, owner),
      note: ending?.reason ?? completed ?? (blocked && `${blocked.reason}: ${blocked.remedy}`),
      resumeWith: phase === 'paused' ? `longhaul resume ${record.name}` : null,
    };
    // The time alone is not worth an edit, so it changes only together with something else.
    if (JSON.stringify(line) !== JSON.stringify(this.shown)) line.at = new Date().toISOString();
    this.shown = line;
    return line;
  }
}

/** One event for each reason at each step; the thread skips events that it has delivered. */
function standstillOf({ blocked, phase }: RunStanding, step: number | null): RunEvent[] {
  if (blocked === null || (phase !== 'blocked' && phase !== 'failing')) return [];
  const { reason, remedy } = blocked;
  const what = sha256Hex(phase === 'failing' ? '' : reason).slice(0, 8);
  const id = `${phase}.${step ?? 0}.${what}`;
  return [{ kind: phase, id, at: new Date().toISOString(), step, reason, remedy }];
}

function secondsLeft({ watch }: EventCursor, steps: number): number | null {
  const sorted = [...watch.stepSeconds].sort((a, b) => a - b);
  const usual = sorted[sorted.length >> 1];
  return usual === undefined ? null : usual * steps;
}

function titleOf(run: string, evaluations: readonly ReportedEvaluation[]): string {
  return `${run} · ${evaluations.at(-1)?.suite ?? ''} · pass@1`;
}

function linesOf(evaluations: readonly ReportedEvaluation[]) {
  const names = [...new Set(evaluations.flatMap(({ environments }) => Object.keys(environments)))];
  const all = {
    name: names.length === 1 ? (names[0] ?? 'all') : 'all',
    points: evaluations.flatMap(({ step, passAt1 }) => pointAt(step, passAt1)),
  };
  if (names.length < 2) return [all];
  const each = names.map((name) => ({
    name,
    points: evaluations.flatMap(({ step, environments }) => pointAt(step, environments[name] ?? null)),
  }));
  return [all, ...each];
}

function pointAt(step: number, value: PassRate): { step: number; value: number }[] {
  return value === null ? [] : [{ step, value }];
}
