// The instances that this process has open at Fleet. Each carries a `run_id` that names the run and this process's owner, for example a
// node, and is kept alive by heartbeats; Fleet ends an instance without them.
//
// A killed process leaves instances behind. Since only one process at a time has this owner, the next one deletes all instances of its
// `run_id`s before it makes any: those in a file of its folder at once, any other before the first instance of the run.
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { abortable } from '../../base/abortable.js';
import { Backoff } from '../../base/backoff.js';
import { sha256Hex } from '../../base/sha256.js';
import { EnvironmentError } from '../environment.js';
import { type Instance, type InstanceOrder, type Orchestrator, SpentRequest } from './orchestrator.js';

export interface Owner {
  /** Only one process at a time has this name. */
  name: string;
  /** Remembers the `run_id`s of earlier processes; absent: instances that this process leaves end when their heartbeats stop. */
  folder?: string;
  log: (message: string) => void;
}

/** An instance is ended by Fleet after this time without a heartbeat, in seconds. */
const heartbeatIntervalS = 300;
const beatMs = 60_000;
/** Heartbeats stop with the first try to delete an instance. After this time Fleet has surely ended the instance itself. */
const expiredMs = (heartbeatIntervalS + 60) * 1000;
const deletePauses: [number, number] = [500, 60_000];
const triesToDelete = 60;
const maxSpent = 20;

export type Order = Omit<InstanceOrder, 'run_id' | 'heartbeat_interval'>;

export class FleetInstances {
  /** Request ids by instance. */
  readonly #open = new Map<Instance, string>();
  /** Sweeps by `run_id`. */
  readonly #swept = new Map<string, Promise<void>>();
  readonly #ending = new Set<Promise<void>>();
  /** Ids of instances that an earlier process left. They are being deleted, so no episode may adopt them. */
  readonly #left = new Set<string>();
  /** Request ids that are in use: a second attempt of an episode must not adopt the first one's world. */
  readonly #requested = new Set<string>();
  /** Files of the runs that this process plays. */
  readonly #noted = new Map<string, Promise<void>>();
  /** The newest removal of such a file. Writing waits for it; else the new file would be removed, too. */
  #unlinking = Promise.resolve();
  /** Ids of instances with a refused heartbeat that was already reported. */
  readonly #refused = new Set<string>();
  readonly #nonce = randomUUID();
  #beats: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(
    private readonly orchestrator: Orchestrator,
    private readonly owner: Owner,
    /** Shorter in tests. */
    private readonly goneWithinMs = expiredMs,
  ) {}

  /**
   * Makes the instance for this opening of an episode. Repeated calls send the same request id until an instance was returned. An instance that
   * was made but not returned is ended. Throws `EnvironmentError`, or the signal's reason.
   */
  async make(
    order: Order,
    { run, episodeId, opening }: { run: string; episodeId: string; opening: number },
    signal: AbortSignal,
    onWait?: (reason: string) => void,
  ): Promise<Instance> {
    const run_id = `${run}@${this.owner.name}`;
    // Without a folder, no earlier process had this name.
    if (this.owner.folder !== undefined)
      await abortable(
        this.#note(run_id).then(() => this.#sweep(run_id)),
        signal,
      );
    for (let spent = 0; ; spent++) {
      // After a spent id, further ids contain this process's nonce, so that no process tries the ids of another one.
      const again = spent === 0 ? [] : [this.#nonce, String(spent)];
      const requestId = uuidOf([this.owner.name, run, episodeId, String(opening), ...again]);
      if (this.#requested.has(requestId)) continue;
      this.#refuseClosed();
      this.#requested.add(requestId);
      const whole = { ...order, run_id, heartbeat_interval: heartbeatIntervalS };
      let named: string | undefined;
      const unwanted = new AbortController();
      // The request is aborted only after Fleet has named the instance, because Fleet may already have made it.
      const onNamed = (id: string): void => {
        named = id;
        if (signal.aborted) unwanted.abort();
      };
      const options = { signal: unwanted.signal, onNamed, ...(onWait ? { onWait } : {}) };
      const made = this.orchestrator.create(whole, requestId, options);
      try {
        const instance = await abortable(made, signal);
        this.#refuseClosed();
        if (this.#left.has(instance.id)) throw new SpentRequest(instance.id);
        this.#open.set(instance, requestId);
        this.#beat();
        return instance;
      } catch (error) {
        if (named !== undefined) unwanted.abort();
        // Nothing was made: a refused episode must not count as an open one.
        else if (!signal.aborted) this.#requested.delete(requestId);
        const isSpent = error instanceof SpentRequest;
        const ended = made.catch(() => undefined).then(() => (named ? this.#end(named) : undefined));
        this.#track(ended.finally(() => this.#requested.delete(requestId)));
        if (!isSpent) throw error;
        if (spent >= maxSpent)
          throw new EnvironmentError('failed', 'open', `Fleet ends each instance of ${episodeId} at once`);
      }
    }
  }

  /** Instances that are open or in the making. */
  get count(): number {
    return this.#requested.size;
  }

  /**
   * Deletes the instance; repeats the request for about an hour until Fleet answers. Resolves when the instance is gone, at the latest when Fleet
   * has ended it for its missed heartbeats. Never rejects.
   */
  end(instance: Instance): Promise<void> {
    const requestId = this.#open.get(instance);
    this.#open.delete(instance);
    const ended = this.#end(instance.id).finally(() => {
      if (requestId !== undefined) this.#requested.delete(requestId);
    });
    this.#track(ended);
    const isGone = new AbortController();
    const expired = sleep(this.goneWithinMs, undefined, { ref: false, signal: isGone.signal });
    return Promise.race([ended, expired.catch(() => undefined)]).finally(() => isGone.abort());
  }

  /** Resolves when the instances that are being deleted are gone, at the latest after `withinMs`. */
  async close(withinMs: number): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#beats);
    const ended = Promise.all([...this.#open.keys()].map((instance) => this.end(instance)));
    const all = Promise.all([ended, ...this.#ending]);
    await Promise.race([all, sleep(withinMs, undefined, { ref: false })]);
  }

  /** Deletes what earlier processes of this owner left. Never rejects. */
  async sweepLeft(): Promise<void> {
    const { folder } = this.owner;
    const names: string[] = folder === undefined ? [] : await readdir(folder).catch(() => []);
    const runIds = await Promise.all(
      names.map((name) => readFile(join(folder as string, name), 'utf8').catch(() => '')),
    );
    for (const runId of runIds.filter((one) => one !== ''))
      try {
        await this.#sweep(runId);
        await Promise.all(this.#ending);
        if (!this.#noted.has(runId)) {
          const unlinking = unlink(this.#fileOf(runId));
          this.#unlinking = unlinking.catch(() => undefined);
          await unlinking;
        }
      } catch (error) {
        this.#complain(runId, error);
      }
  }

  /** Written before the first instance of the run is made. */
  #note(runId: string): Promise<void> {
    const noted = this.#noted.get(runId) ?? this.#write(runId);
    this.#noted.set(runId, noted);
    noted.catch(() => this.#noted.delete(runId));
    return noted;
  }

  async #write(runId: string): Promise<void> {
    const { folder = '' } = this.owner;
    await this.#unlinking;
    await mkdir(folder, { recursive: true });
    await writeFile(this.#fileOf(runId), runId);
  }

  #fileOf(runId: string): string {
    return join(this.owner.folder ?? '', `${sha256Hex(runId)}.txt`);
  }

  #sweep(runId: string): Promise<void> {
    const known = this.#swept.get(runId);
    if (known) return known;
    const sweeping = this.#deleteAll(runId).catch((error: unknown) => {
      this.#swept.delete(runId);
      throw error;
    });
    this.#swept.set(runId, sweeping);
    return sweeping;
  }

  async #deleteAll(runId: string): Promise<void> {
    const { log } = this.owner;
    const left = await this.orchestrator.running(runId);
    if (left.length > 0)
      log(`deletes ${left.length} Fleet instances that an earlier process left (${runId})`);
    // In the background, because they are never the instances that are made from now on.
    for (const id of left) {
      this.#left.add(id);
      this.#track(this.#end(id));
    }
  }

  /** Throws after the end: a new instance would get no heartbeats. */
  #refuseClosed(): void {
    if (this.#isClosed) throw new Error('the environment backend is closed');
  }

  async #end(id: string): Promise<void> {
    const pauses = new Backoff(deletePauses);
    for (let tries = 1; ; tries++) {
      try {
        return await this.orchestrator.delete(id);
      } catch (error) {
        if (tries >= triesToDelete) return this.#complain(id, error);
      }
      await sleep(pauses.next(), undefined, { ref: false });
    }
  }

  #complain(what: string, error: unknown): void {
    this.owner.log(`Fleet keeps ${what} until its heartbeats are missed: ${(error as Error).message}`);
  }

  #track(ending: Promise<void>): void {
    this.#ending.add(ending);
    void ending.finally(() => this.#ending.delete(ending));
  }

  #beat(): void {
    this.#beats ??= setInterval(() => {
      for (const instance of this.#open.keys())
        this.orchestrator.heartbeat(instance).catch((error: unknown) => this.#missed(instance, error));
    }, beatMs).unref();
  }

  /** One missed heartbeat does no harm, because Fleet ends an instance after five; but if Fleet refuses one, it may refuse all. */
  #missed(instance: Instance, error: unknown): void {
    if (!this.#open.has(instance) || this.#refused.has(instance.id)) return;
    this.#refused.add(instance.id);
    this.owner.log(`no heartbeat of the Fleet instance ${instance.id}: ${(error as Error).message}`);
  }
}

/** A UUID that is a function of the parts (RFC 9562, version 8). */
function uuidOf(parts: readonly string[]): string {
  const hex = createHash('sha256').update(JSON.stringify(parts)).digest('hex');
  const variant = ((parseInt(hex.slice(16, 17), 16) & 3) | 8).toString(16);
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `${variant}${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-');
}
