// The follower finds runs and sends each run's records to its trackers and its Slack thread. No workflow knows of it, and no step waits for
// it. If Temporal, the store or Slack does not answer, it waits and reports the problem once.
import { Backoff, backoffMs } from '../../base/backoff.js';
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { Client, isGrpcServiceError, ServiceError } from '@temporalio/client';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import { pause } from './deadlines.js';
import { readIfWhole, replaceFile } from './follower-notes.js';
import { catchUp, followRun, type SessionOptions, type SessionSettings } from './run-session.js';
import { type DrivenRun, type RunStanding, RunWatch } from './run-watch.js';
import { RunFigures } from '../../integrations/tracking/prometheus.js';
import { serveMetrics } from '../../integrations/tracking/prometheus-server.js';
import type { Trouble } from '../../store/runs/notices.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openStore } from '../../store/open-store.js';
import { type FollowerConfig, servingFile } from './follower-config.js';
import { openConnection } from '../temporal/temporal-connection.js';
import { refusalOf } from '../temporal/temporal-refusal.js';
import { print } from '../process/worker-exit.js';

const lookEveryMs = 5_000;
/** Each look for ended runs begins this long before the last look: clocks differ, and Temporal may list a run late. */
const overlapMs = 600_000;
/** How far back to look for ended runs at the first start. */
const firstLookBackMs = 86_400_000;
/** Number of ended runs to follow at the same time. It is small, because all records of each run are read again. */
const mostEnded = 8;
const retryMs: [first: number, longest: number] = [1_000, 60_000];
/** First pause before a tracker that was given up is tried again; the pauses double. A starting follower also tries it once. */
const againMs = 3_600_000;
const mostAgain = 6;
/** Figures of an ended run stay this long, so that Prometheus scrapes its end. */
const forgetAfterMs = 600_000;
const endWithinMs = 5_000;
const catchUpWithinMs = 4_000;

/** Call when the folder is locked. Resolves some seconds after SIGTERM or SIGINT. */
export async function runFollower(config: FollowerConfig): Promise<void> {
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.once(name, () => stop.abort());
  const follower = new FollowerProcess(config, stop.signal);
  await follower.run();
}

const unanswered: readonly number[] = [status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.CANCELLED];

interface Session {
  driven: Omit<DrivenRun, 'standing'>;
  standing: RunStanding;
  /** Null if the session does not run: before its start and after its end. */
  running: { abort: AbortController; done: Promise<void> } | null;
  /** When every sink had received the whole run or was finally given up; null before that. */
  endedAt: number | null;
  /** How many times sinks were given up, and when they may be tried again, by `performance.now()`. */
  lacking: { times: number; notBefore: number };
}

/** File for each followed run. These files have their own folder: a run's folder is moved away when another run takes its name. */
interface Followed {
  workflowId: string;
  firstRunId: string;
  /** True when every sink has received the whole run. */
  over: boolean;
  /** Run id of the execution that ended, if the run is over. After a reset, another execution ends. */
  end: string | null;
}

class FollowerProcess {
  private readonly sessions = new Map<string, Session>();
  private readonly figures: RunFigures | null;
  private readonly said = new Map<string, string>();
  private metricsTrouble: Trouble | null = null;
  private settings: SessionSettings | null = null;
  private lookedAt: Date | null = null;

  constructor(
    private readonly config: FollowerConfig,
    private readonly signal: AbortSignal,
  ) {
    this.figures = config.metrics ? new RunFigures() : null;
  }

  async run(): Promise<void> {
    const { config, signal } = this;
    await mkdir(this.runs, { recursive: true });
    const serving = this.serveFigures();
    const store = await this.store();
    if (store) {
      const { options, namespace } = config.temporal;
      const connection = openConnection(options);
      this.settings = this.settingsWith(store);
      const watch = new RunWatch(new Client({ connection, namespace }), store);
      this.lookedAt = await this.lastLook();
      await this.resume();
      while (!signal.aborted) {
        // A server that does not answer must not delay the end of this process, for which the supervisor waits only seconds.
        await orAborted(this.look(watch), signal);
        await replaceFile(join(config.folder, servingFile), { pid: process.pid }).catch(() => undefined);
        await pause(lookEveryMs, signal);
      }
      await this.end();
      await connection.close().catch(() => undefined);
    }
    await serving;
  }

  private get runs(): string {
    return join(this.config.folder, 'runs');
  }

  private followedFile(run: string): string {
    return join(this.runs, `${run}.json`);
  }

  private log(message: string): void {
    print({ level: 'info', component: 'follower', message });
  }

  /** Logs a problem of `what` once, and logs its end. */
  private say(what: string, problem: string | null): void {
    const before = this.said.get(what);
    if (problem === (before ?? null)) return;
    if (problem === null) {
      this.said.delete(what);
      this.log(`${what} answers again`);
      return;
    }
    this.said.set(what, problem);
    // Log no other problem of `what` until it answers again.
    if (before === undefined)
      print({ level: 'warn', component: 'follower', message: `${what}: ${problem}; trying again` });
  }

  /** Opens the store, and tries again until it answers. Null if the process must end before that. */
  private async store(): Promise<ObjectStore | null> {
    const pauses = new Backoff(retryMs);
    while (!this.signal.aborted) {
      try {
        const store = await openStore(this.config.store);
        this.say('store', null);
        return store;
      } catch (error) {
        this.say('store', messageOf(error));
        await pause(pauses.next(), this.signal);
      }
    }
    return null;
  }

  private settingsWith(store: ObjectStore): SessionSettings {
    const { folder, wandbPython, slackUrl } = this.config;
    return {
      ...{ store, folder, wandbPython, figures: this.figures },
      wandbKey: () => process.env.WANDB_API_KEY || undefined,
      slackToken: () => process.env.SLACK_BOT_TOKEN || undefined,
      slackTokenName: 'SLACK_BOT_TOKEN',
      ...(slackUrl === null ? {} : { slackUrl }),
      trouble: () => ({ sink: 'metrics address', trouble: this.metricsTrouble }),
      by: `follower pid ${process.pid}`,
      clean: withoutKnownSecrets,
      log: (line) => this.log(line),
    };
  }

  private async serveFigures(): Promise<void> {
    const { metrics } = this.config;
    if (!metrics || !this.figures) return;
    const pauses = new Backoff(retryMs);
    while (!this.signal.aborted) {
      try {
        const server = await serveMetrics(this.figures.registry, metrics);
        this.said.delete('metrics');
        this.metricsTrouble = null;
        this.log(`figures for Prometheus are at ${server.url}`);
        await new Promise<void>((resolve) => this.signal.addEventListener('abort', () => resolve()));
        return await server.close();
      } catch (error) {
        const reason = messageOf(error);
        this.say('metrics', reason);
        const since = this.metricsTrouble?.since ?? new Date().toISOString();
        this.metricsTrouble = { what: 'all figures for Prometheus', reason, since };
        await pause(pauses.next(), this.signal);
      }
    }
  }

  private async lastLook(): Promise<Date> {
    const kept = (await readIfWhole(join(this.config.folder, 'looked.json'))) as { at?: unknown } | null;
    const at = new Date(typeof kept?.at === 'string' ? kept.at : NaN);
    return Number.isNaN(at.getTime()) ? new Date(Date.now() - firstLookBackMs) : at;
  }

  /** Continues runs that an earlier process of this folder had not followed to their end. This does not need Temporal. */
  private async resume(): Promise<void> {
    for (const name of await readdir(this.runs)) {
      if (!name.endsWith('.json')) continue;
      const run = name.slice(0, -'.json'.length);
      const followed = await this.followed(run);
      if (!followed || followed.over) continue;
      const standing = { over: false, ending: null, phase: null, blocked: null };
      this.add({ run, workflowId: followed.workflowId, firstRunId: followed.firstRunId }, standing);
    }
    this.begin();
  }

  private async look(watch: RunWatch): Promise<void> {
    const begun = new Date();
    try {
      const since = new Date((this.lookedAt ?? begun).getTime() - overlapMs);
      const listed = await watch.look(since);
      for (const one of listed) await this.meet(one);
      const names = new Set(listed.map(({ run }) => run));
      for (const [run, session] of this.sessions) {
        if (names.has(run)) continue;
        if (session.endedAt === null && !isLeftAlone(session))
          await this.hear(session, await watch.standing(session.driven));
        else if (this.isForgotten(session)) this.sessions.delete(run);
      }
      this.lookedAt = begun;
      await replaceFile(join(this.config.folder, 'looked.json'), { at: begun.toISOString() });
      for (const what of ['Temporal', 'store']) this.say(what, null);
    } catch (error) {
      if (!this.signal.aborted) this.say(...this.problem(error));
    }
    for (const [run, session] of this.sessions) if (this.isForgotten(session)) this.figures?.forget(run);
    this.begin();
  }

  /** Says whether the store or the Temporal server failed during a look, and why. */
  private problem(error: unknown): [what: string, problem: string] {
    const { temporal } = this.config;
    const refused = refusalOf(error, temporal);
    if (refused) return ['Temporal', refused.message];
    if (!(error instanceof ServiceError)) return ['store', messageOf(error)];
    const { cause } = error;
    if (isGrpcServiceError(cause) && unanswered.includes(cause.code))
      return [
        'Temporal',
        `no server answers at ${temporal.address}: is it running, and is the address right?`,
      ];
    return ['Temporal', messageOf(cause ?? error)];
  }

  private isForgotten({ endedAt }: Session): boolean {
    return endedAt !== null && Date.now() - endedAt > forgetAfterMs;
  }

  private async meet({ standing, ...driven }: DrivenRun): Promise<void> {
    const session = this.sessions.get(driven.run);
    if (session?.driven.firstRunId === driven.firstRunId) return this.hear(session, standing);
    if (session) await stopped(session);
    const followed = await this.followed(driven.run);
    const isFollowed = followed?.firstRunId === driven.firstRunId && followed.over;
    const isDone = isFollowed && standing.over && followed.end === endOf(standing);
    this.add(driven, standing, isDone);
    if (!isDone) await this.note(driven, false);
  }

  /** Takes a run's new standing. If a run that was over continues, or ends again, it was reset, and all its sinks start again. */
  private async hear(session: Session, standing: RunStanding): Promise<void> {
    const { driven, standing: before } = session;
    // Temporal has forgotten the run: keep the known end.
    if (before.over && standing.over && standing.ending === null) return;
    if (!before.over || (standing.over && endOf(standing) === endOf(before))) {
      session.standing = standing;
      return;
    }
    await stopped(session);
    this.add(driven, standing);
    await this.note(driven, false);
  }

  private add(driven: Session['driven'], standing: RunStanding, isDone = false): void {
    this.sessions.set(driven.run, {
      ...{ driven, standing, running: null, endedAt: isDone ? 0 : null },
      lacking: { times: 0, notBefore: 0 },
    });
  }

  /** Starts sessions that do not run yet, but at most `mostEnded` of ended runs. */
  private begin(): void {
    if (this.signal.aborted) return;
    const sessions = [...this.sessions.values()];
    let ended = sessions.filter(({ running, standing }) => running && standing.over).length;
    for (const session of sessions) {
      if (session.running || session.endedAt !== null || isLeftAlone(session)) continue;
      if (session.standing.over && ++ended > mostEnded) continue;
      const abort = new AbortController();
      session.running = { abort, done: this.follow(session, abort.signal) };
    }
  }

  private async follow(session: Session, signal: AbortSignal): Promise<void> {
    const { run } = session.driven;
    const pauses = new Backoff(retryMs);
    while (!signal.aborted) {
      try {
        const end = await followRun(this.sessionOptions(session, signal));
        if (end === 'stopped') return;
        const { lacking } = session;
        if (end === 'lacking' && lacking.times++ < mostAgain)
          lacking.notBefore = performance.now() + backoffMs(lacking.times, [againMs, Infinity]);
        else {
          await this.note(session.driven, end === 'delivered', endOf(session.standing));
          session.endedAt = Date.now();
        }
        session.running = null;
        this.say(`records of ${run}`, null);
        return;
      } catch (error) {
        this.say(`records of ${run}`, messageOf(error));
        await pause(pauses.next(), signal);
      }
    }
  }

  private sessionOptions(session: Session, signal: AbortSignal): SessionOptions {
    if (!this.settings) throw new Error('the store is not open yet');
    const { run, workflowId } = session.driven;
    const { temporalUi, temporal } = this.config;
    const page = `/namespaces/${encodeURIComponent(temporal.namespace)}/workflows/${encodeURIComponent(workflowId)}`;
    const links = temporalUi === null ? [] : [{ label: 'Temporal UI', url: `${temporalUi}${page}` }];
    return { ...this.settings, run, links, standing: () => session.standing, signal };
  }

  private async followed(run: string): Promise<Followed | null> {
    const kept = (await readIfWhole(this.followedFile(run))) as Partial<Followed> | null;
    const { workflowId, firstRunId, over, end } = kept ?? {};
    if (typeof workflowId !== 'string' || typeof firstRunId !== 'string') return null;
    return { workflowId, firstRunId, over: over === true, end: end ?? null };
  }

  private async note(
    { run, workflowId, firstRunId }: Session['driven'],
    over: boolean,
    end: string | null = null,
  ): Promise<void> {
    const followed: Followed = { workflowId, firstRunId, over, end };
    await replaceFile(this.followedFile(run), followed);
  }

  /** Ends all sessions, then completes the files on this machine, as a stack may be stopped right after its run. */
  private async end(): Promise<void> {
    const open = [...this.sessions.values()].filter(({ running }) => running);
    const running = open.flatMap((session) => session.running ?? []);
    for (const { abort } of running) abort.abort();
    const ended = Promise.all(running.map(({ done }) => done));
    await Promise.race([ended, pause(endWithinMs, new AbortController().signal)]);
    const signal = AbortSignal.timeout(catchUpWithinMs);
    await Promise.all(
      open.map((session) => catchUp(this.sessionOptions(session, signal)).catch(() => undefined)),
    );
  }
}

/** True if the run is over and its incomplete sinks wait for their next try. */
function isLeftAlone({ standing, lacking }: Session): boolean {
  return standing.over && performance.now() < lacking.notBefore;
}

async function stopped({ running }: Session): Promise<void> {
  running?.abort.abort();
  await running?.done;
}

function endOf({ ending }: RunStanding): string | null {
  return ending?.runId ?? null;
}

/** Waits for `work` or for the abort of `signal`, whichever comes first. */
function orAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (): void => resolve();
    signal.addEventListener('abort', done, { once: true });
    void work.then(resolve, reject).finally(() => signal.removeEventListener('abort', done));
    if (signal.aborted) resolve();
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
