// One thread per run: its first message is edited to show the run's current state, and replies report events, each exactly once. The
// process may be killed at any moment, and an answer may be lost. So before it sends a message that may exist already, it reads the thread;
// a message with the event's mark counts as delivered. No run waits for this module. Only one process at a time may hold a run's thread.
import { Backoff } from '../../base/backoff.js';
import { createHash } from 'node:crypto';
import { type Message, withNote, withPicture } from './blocks.js';
import { ChartUploads } from './chart-uploads.js';
import { eventMessage, type LaterEvent } from './event-message.js';
import { pause } from '../../base/abortable.js';
import type { RunEvent, RunStarted, RunStatusLine } from './run-event.js';
import { type Mark, SlackApi, type SlackAccess } from './slack-api.js';
import { SlackCallFailed } from './slack-failure.js';
import { statusMessage, type Undelivered } from './status-message.js';
import {
  type Dropped,
  markId,
  recordOf,
  remembered,
  type ThreadMemory,
  type ThreadState,
} from './thread-record.js';
import { type Patience, Trouble } from './trouble.js';

export interface RunThreadOptions {
  access: SlackAccess;
  /** Content of the thread's first message, whichever event arrives first. */
  started: RunStarted;
  /** Unique to this run among all that may write to the channel, such as a digest of the store's address and `run.json`. */
  key: string;
  state: ThreadState;
  /** Aborts every wait; work in progress rejects with its reason. */
  stop: AbortSignal;
  /** Receives one line for each problem, with the fix. `standing`: true if `trouble` also returns this line while the problem lasts. */
  report: (line: string, standing: boolean) => void;
  timing?: Partial<ThreadTiming>;
}

export interface ThreadTiming extends Patience {
  /** Time between posts: Slack accepts about one message per second in a channel. */
  postEveryMs: number;
  /** Time between edits of the first message. */
  editEveryMs: number;
  /** Time to wait for a post whose answer was lost to arrive, before the thread is read to find it. */
  settleMs: number;
  /** Time until a message may name an uploaded picture. */
  pictureWaitMs: number;
}

type Delivery = { outcome: 'delivered'; ts: string } | { outcome: 'dropped'; reason: string };

export const defaultTiming: ThreadTiming = {
  giveUpAfterMs: 15 * 60_000,
  firstPauseMs: 1_000,
  longestPauseMs: 60_000,
  restMs: 60_000,
  postEveryMs: 1_000,
  editEveryMs: 30_000,
  settleMs: 5_000,
  pictureWaitMs: 20_000,
};

/** Slack's clock may differ by this much from the clocks of the records. */
const clockSkewMs = 3_600_000;
/** A person who deletes the first message this often does not want one. */
const mostRoots = 3;

export class RunThread {
  private readonly timing: ThreadTiming;
  private readonly api: SlackApi;
  private readonly charts: ChartUploads;
  private readonly currentTrouble: Trouble;
  private readonly rootId: string;
  /** The complete record, saved in `state` after each change. */
  private memory: ThreadMemory | null = null;
  private saved = true;
  /** Time of the last message with an unknown result, from this process or its predecessor; null if all results are known. */
  private doubtSince: number | null = performance.now();
  private greeted = false;
  private rootsLost = 0;
  private status: RunStatusLine | null = null;
  private shown = '';
  private nextEdit = 0;
  private editable = true;
  private nextPost = 0;
  private readonly reported = new Set<string>();
  private turns: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: RunThreadOptions) {
    this.timing = { ...defaultTiming, ...options.timing };
    this.api = new SlackApi(options.access, options.stop);
    this.charts = new ChartUploads(this.api, (reason) =>
      this.reportOnce('charts', `Evaluations are posted to Slack without their chart: ${reason}`),
    );
    this.currentTrouble = new Trouble(this.timing, options.stop);
    this.rootId = markId(options.started.id);
  }

  /** Why no message can be sent now, with the fix if a person can help; null if messages get through. */
  get trouble(): string | null {
    return this.currentTrouble.last?.message ?? null;
  }

  /** Events that were given up, for the run's status; empty before the first call. */
  get dropped(): readonly (Dropped & { id: string })[] {
    return [...(this.memory?.dropped ?? [])].map(([id, one]) => ({ id, ...one }));
  }

  /**
   * Resolves once the event is in the thread or was given up; at once if that has happened before. Deliver events in order, each after the
   * previous one has resolved. Rejects if `state` fails, or with the reason of `stop`; the same event may then be delivered again, here or
   * in another process.
   */
  deliver(event: RunEvent): Promise<Delivery> {
    return this.turn(async (memory) => {
      const id = markId(event.id);
      const before = settled(memory, id);
      if (before !== null) {
        await this.save();
        return before;
      }
      const failure = await this.currentTrouble.outlasted(() => this.noting(() => this.bring(event, id)));
      this.charts.forget();
      if (failure === null) this.recovered();
      else this.drop(memory, id, failure);
      await this.save();
      return settled(memory, id) ?? { outcome: 'dropped', reason: failure?.message ?? 'unknown' };
    });
  }

  /**
   * Shows the run's current state. `due`: at most once per `editEveryMs`, with one attempt, and not at all while Slack fails, because a
   * newer status will follow. `now`: as patient as `deliver`, for the last status of a run.
   */
  showStatus(status: RunStatusLine, when: 'due' | 'now' = 'due'): Promise<void> {
    return this.turn(async () => {
      this.status = status;
      const show = (): Promise<void> => this.noting(() => this.show());
      if (when === 'now') {
        const failure = await this.currentTrouble.outlasted(show);
        if (failure === null) this.recovered();
        return;
      }
      if (this.currentTrouble.pausing || performance.now() < this.nextEdit) return;
      try {
        await show();
        this.currentTrouble.over();
        this.recovered();
      } catch (error) {
        if (!(error instanceof SlackCallFailed)) throw error;
        if (error.failure.kind !== 'refused') this.currentTrouble.note(error);
      }
    });
  }

  private async bring(event: RunEvent, id: string): Promise<void> {
    const memory = await this.opened();
    await this.reconcile(memory);
    const channel = await this.root(memory);
    if (event.kind === 'started' || memory.delivered.has(id)) return;
    const ts = await this.reply(channel, event, id);
    memory.delivered.set(id, ts);
    this.saved = false;
  }

  private async show(): Promise<void> {
    const memory = await this.opened();
    await this.reconcile(memory);
    const had = memory.root !== null;
    const channel = await this.root(memory);
    const message = this.rootMessage(memory);
    const digest = digestOf(message);
    if (had && digest !== this.shown && this.editable) {
      this.nextEdit = performance.now() + this.timing.editEveryMs;
      try {
        await this.api.update(channel.id, channel.root, { ...message, mark: this.mark(this.rootId) });
      } catch (error) {
        if (!isRefused(error)) throw error;
        this.editable = false;
        this.reportOnce('edits', `The status message in Slack is not updated: ${error.failure.reason}`);
      }
    }
    this.shown = digest;
  }

  /** Reads the thread if a message may have arrived unnoticed. After this, an event that is missing in memory is also missing in Slack. */
  private async reconcile(memory: ThreadMemory): Promise<void> {
    const { started, stop } = this.options;
    if (this.doubtSince === null) return;
    if (!this.greeted) await this.api.whoAmI();
    this.greeted = true;
    if (memory.channel === null) {
      memory.channel = await this.api.channelId();
      this.saved = false;
    }
    await pause(this.doubtSince + this.timing.settleMs - performance.now(), stop);
    if (memory.root === null) {
      const since = new Date((Date.parse(started.at) || 0) - clockSkewMs);
      for await (const { ts, mark } of this.api.history(memory.channel, since)) {
        if (!this.isMine(mark) || mark.id !== this.rootId) continue;
        this.found(memory, this.rootId, ts);
        memory.root = ts;
        break;
      }
    }
    if (memory.root !== null) {
      const newest = [...memory.delivered.values()].reduce(later, memory.root);
      for await (const { ts, mark } of this.api.replies(memory.channel, memory.root, newest))
        if (this.isMine(mark)) this.found(memory, mark.id, ts);
    }
    this.doubtSince = null;
    await this.save();
  }

  private found(memory: ThreadMemory, id: string, ts: string): void {
    if (memory.delivered.has(id)) return;
    memory.delivered.set(id, ts);
    memory.dropped.delete(id);
    this.saved = false;
  }

  /** Channel and first message of the thread; posts the first message if there is none. */
  private async root(memory: ThreadMemory): Promise<{ id: string; root: string }> {
    const channel = (memory.channel ??= await this.api.channelId());
    if (memory.root === null) {
      const message = this.rootMessage(memory);
      const ts = await this.post(channel, { ...message, mark: this.mark(this.rootId) }, null);
      memory.root = ts;
      memory.delivered.set(this.rootId, ts);
      memory.dropped.delete(this.rootId);
      this.shown = digestOf(message);
      this.nextEdit = performance.now() + this.timing.editEveryMs;
      this.saved = false;
      await this.save();
    }
    return { id: channel, root: memory.root };
  }

  private rootMessage(memory: ThreadMemory): Message {
    const dropped = [...memory.dropped].filter(([id]) => id !== this.rootId).map(([, one]) => one);
    const last = dropped.at(-1);
    const undelivered: Undelivered | null =
      last === undefined ? null : { count: dropped.length, reason: last.reason };
    return statusMessage(this.options.started, this.status, undelivered);
  }

  private async reply(channel: { id: string; root: string }, event: LaterEvent, id: string): Promise<string> {
    const message = eventMessage(this.options.started.run, event);
    const picture = message.picture;
    const thread = { root: channel.root, broadcast: message.broadcast };
    const mark = this.mark(id);
    const send = ({ text, blocks }: Message): Promise<string> =>
      this.post(channel.id, { text, blocks, mark }, thread);
    if (picture === null) return send(message);
    const upload = await this.charts.uploaded(id, picture);
    if ('missing' in upload) return send(withNote(message, upload.missing));
    const end = performance.now() + this.timing.pictureWaitMs;
    const pauses = new Backoff([this.timing.firstPauseMs, Infinity]);
    for (;;) {
      try {
        return await send(withPicture(message, picture, upload.file));
      } catch (error) {
        if (!isRefused(error) || error.failure.code !== 'invalid_blocks') throw error;
        const pauseMs = pauses.next();
        if (performance.now() + pauseMs > end)
          return send(withNote(message, 'Chart left out: Slack did not accept the picture.'));
        await pause(pauseMs, this.options.stop);
      }
    }
  }

  private async post(...message: Parameters<SlackApi['post']>): Promise<string> {
    await pause(this.nextPost - performance.now(), this.options.stop);
    this.nextPost = performance.now() + this.timing.postEveryMs;
    return this.api.post(...message);
  }

  /** Records what a failed attempt means for the next one. */
  private async noting(attempt: () => Promise<void>): Promise<void> {
    try {
      await attempt();
    } catch (error) {
      if (!(error instanceof SlackCallFailed)) throw error;
      const { failure } = error;
      if (failure.kind === 'passing') this.doubtSince = performance.now();
      if (failure.kind === 'gone') this.loseRoot(error);
      if (failure.kind === 'lasting')
        this.reportOnce(`resting ${failure.code}`, `Nothing can be posted to Slack: ${error.message}`, true);
      throw error;
    }
  }

  /** A new first message replaces a deleted one; delivered events stay delivered. Throws after too many deletions. */
  private loseRoot({ method, failure }: SlackCallFailed): void {
    if (this.memory === null) return;
    if (++this.rootsLost > mostRoots)
      throw new SlackCallFailed(method, { kind: 'refused', code: 'gone', reason: failure.reason });
    this.memory.root = null;
    this.memory.delivered.delete(this.rootId);
    this.doubtSince ??= performance.now();
    this.saved = false;
  }

  private drop(memory: ThreadMemory, id: string, error: SlackCallFailed): void {
    memory.dropped.set(id, { reason: error.message, at: new Date().toISOString() });
    this.saved = false;
    const refused = error.failure.kind === 'refused';
    this.reportOnce(
      refused ? `refused ${id}` : 'giving up',
      refused
        ? `The event ${id} is not posted to Slack: ${error.message}`
        : `The event ${id} is not posted to Slack, and no other event until Slack can be reached: ${error.message}`,
    );
  }

  private recovered(): void {
    const troubles = [...this.reported].filter((what) => what.startsWith('resting') || what === 'giving up');
    for (const trouble of troubles) this.reported.delete(trouble);
    if (troubles.length > 0) this.options.report('Slack accepts messages again', true);
  }

  private reportOnce(what: string, line: string, standing = false): void {
    if (this.reported.has(what)) return;
    this.reported.add(what);
    this.options.report(line, standing);
  }

  private mark(id: string): Mark {
    return { run: this.options.started.run, key: this.options.key, id };
  }

  private isMine({ run, key }: Mark): boolean {
    return run === this.options.started.run && key === this.options.key;
  }

  private async opened(): Promise<ThreadMemory> {
    const { state, access } = this.options;
    return (this.memory ??= remembered(await state.load(), access.channel));
  }

  private async save(): Promise<void> {
    if (this.saved || this.memory === null) return;
    await this.options.state.save(recordOf(this.memory));
    this.saved = true;
  }

  /** Runs work one at a time: a status update between two attempts for an event would change the thread's memory meanwhile. */
  private turn<T>(work: (memory: ThreadMemory) => Promise<T>): Promise<T> {
    const turn = this.turns.then(async () => work(await this.opened()));
    this.turns = turn.catch(() => undefined);
    return turn;
  }
}

function settled(memory: ThreadMemory, id: string): Delivery | null {
  const ts = memory.delivered.get(id);
  if (ts !== undefined) return { outcome: 'delivered', ts };
  const dropped = memory.dropped.get(id);
  return dropped === undefined ? null : { outcome: 'dropped', reason: dropped.reason };
}

interface RefusedCall extends SlackCallFailed {
  failure: Extract<SlackCallFailed['failure'], { kind: 'refused' }>;
}

function isRefused(error: unknown): error is RefusedCall {
  return error instanceof SlackCallFailed && error.failure.kind === 'refused';
}

/** Both are seconds with six decimal places, so text order is time order. */
const later = (a: string, b: string): string => (b > a ? b : a);

function digestOf(message: Message): string {
  return createHash('sha256').update(JSON.stringify(message)).digest('hex');
}
