// An instance's own routes: reset, and a query of each of its databases.
//
// While a database answers "database is locked", most verifiers return 0 and say nothing. So a grade counts only if every database has
// answered before, during and after it.
import { isObject } from '../../base/json.js';
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeNow } from '../../base/awake-clock.js';
import { Backoff } from '../../base/backoff.js';
import { NoAnswer } from '../../base/http-request.js';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import type { EnvironmentReason } from '../../spec/records/episode.js';
import { EnvironmentError } from '../environment.js';
import { textOf } from '../tool-results.js';
import { detailOf, type FleetAnswer } from './fleet-request.js';
import { jsonRequest } from './json-request.js';
import type { Instance, Orchestrator } from './orchestrator.js';

const resetMs = 60_000;
const queryMs = 20_000;
const triesToQuery = 4;
const queryPauses: [number, number] = [250, 2_000];
/** SQLite waits 5 s for a lock, so a verifier that meets one takes longer than these. */
const watchPauses: [number, number] = [500, 2_000];
/** Statuses of a gate, a gateway or a rate limit, which say nothing about the database. */
const noAnswerOfDatabase = [401, 403, 404, 408, 429, 502, 503, 504];
/** Fleet reports an instance as running before its manager can be reached; this is how long it may take. */
const comesUpMs = 60_000;
const resetPauses: [number, number] = [250, 5_000];
/** Reads a page of the file, so a lock is seen. */
const canary = 'SELECT count(*) FROM sqlite_master';

export class InstanceApi {
  #databases: readonly string[] = [];

  constructor(
    private readonly instance: Instance,
    private readonly orchestrator: Orchestrator,
  ) {}

  /**
   * Resets the databases to their seed, and waits until the instance can be reached. Throws `EnvironmentError`: `failed`, `reset` if Fleet refuses;
   * with any other error the reset may still be carried out.
   */
  async reset(signal: AbortSignal): Promise<void> {
    const pauses = new Backoff(resetPauses);
    const giveUpAt = awakeNow() + comesUpMs;
    const ask = async (): Promise<FleetAnswer | null> => {
      try {
        const answer = await this.#ask('POST', '/reset', {}, resetMs, signal);
        return awakeNow() < giveUpAt && [502, 503].includes(answer.status) ? null : answer;
      } catch (error) {
        const { cause } = error as Error;
        if (awakeNow() < giveUpAt && cause instanceof NoAnswer && cause.wasNotSent) return null;
        throw error;
      }
    };
    let answer = await ask();
    for (; answer === null; answer = await ask()) await sleep(pauses.next(), undefined, { signal });
    // A gateway gave up waiting.
    if (answer.status === 408 || answer.status === 504 || answer.status >= 520)
      throw new EnvironmentError(
        'unavailable',
        'timeout',
        `instance ${this.instance.id}: ${detailOf(answer)}`,
      );
    const isDone = answer.status < 300 && !(isObject(answer.body) && answer.body.success === false);
    if (!isDone) throw refused(this.instance, 'reset', detailOf(answer));
  }

  /**
   * Before a grade: resolves when every database has answered a query; throws `EnvironmentError` `failed`, `canary` if one does not. An
   * instance may have no databases, unless the verifier asks for one (`isNeeded`).
   */
  async queryAll(isNeeded: boolean): Promise<void> {
    const pauses = new Backoff(queryPauses);
    for (let tries = 1; ; tries++) {
      const isLast = tries >= triesToQuery;
      const problem = await this.#problem(async () => {
        // Asked again at each try, because an empty or short list may mean that the instance is still loading.
        this.#databases = await this.#listed();
        return this.#databases.length === 0 && (isNeeded || !isLast) ? 'lists no databases' : null;
      });
      if (problem === null) return;
      if (isLast) throw refused(this.instance, 'canary', problem);
      await sleep(pauses.next());
    }
  }

  /**
   * While a verifier runs, queries every database repeatedly, because a lock may end together with the verifier that waited for it. Settles as
   * `verifier` does, after the last query has been answered.
   */
  async queryDuring<T>(verifier: Promise<T>): Promise<T> {
    const ended = new AbortController();
    const watching = this.#watch(ended.signal);
    watching.catch(() => undefined);
    const result = await verifier.finally(async () => {
      ended.abort();
      await watching;
    });
    const problem = await watching;
    if (problem !== null) throw refused(this.instance, 'canary', problem);
    return result;
  }

  /**
   * The first problem that a database reports. A query without an answer says nothing about a lock. A query in flight is not cut off, because it
   * waits for the same lock as the verifier did.
   */
  async #watch(ended: AbortSignal): Promise<string | null> {
    const pauses = new Backoff(watchPauses);
    for (;;) {
      const asked = this.#databases.map((name) => this.#queried(name, noAnswerOfDatabase));
      const answers = await Promise.allSettled(asked);
      const problem = answers.find((one) => one.status === 'fulfilled' && one.value !== null);
      if (problem?.status === 'fulfilled') return problem.value;
      if (ended.aborted) return null;
      await sleep(pauses.next(), undefined, { signal: ended }).catch(() => undefined);
      if (ended.aborted) return null;
    }
  }

  /**
   * After a grade, queries every database once, without a retry: a lock that is gone at the second try may have existed while the verifier ran.
   */
  async queryAgain(): Promise<void> {
    const problem = await this.#problem();
    if (problem !== null) throw refused(this.instance, 'canary', problem);
  }

  async #problem(list?: () => Promise<string | null>): Promise<string | null> {
    try {
      const problem = await list?.();
      if (typeof problem === 'string') return problem;
      const problems = await Promise.all(this.#databases.map((name) => this.#queried(name)));
      return problems.find((one) => one !== null) ?? null;
    } catch (error) {
      if (error instanceof EnvironmentError) return error.message;
      throw error;
    }
  }

  async #listed(): Promise<string[]> {
    const answer = await this.#ask('GET', '/resources', undefined, queryMs);
    const { body } = answer;
    const listed = isObject(body) ? body.resources : body;
    if (answer.status >= 300 || !Array.isArray(listed))
      throw refused(this.instance, 'canary', `lists no resources: ${detailOf(answer)}`);
    return listed
      .filter(isObject)
      .filter(({ type }) => type === 'sqlite')
      .map(({ name }) => textOf(name, ''));
  }

  /** The problem of a database; null without one. Answers with the statuses in `ignored` are no problem. */
  async #queried(name: string, ignored: readonly number[] = []): Promise<string | null> {
    const path = `/resources/sqlite/${encodeURIComponent(name)}/query`;
    const answer = await this.#ask('POST', path, { query: canary, read_only: true }, queryMs);
    const { body } = answer;
    if (ignored.includes(answer.status)) return null;
    if (answer.status < 300 && isObject(body) && body.success === true && !body.error) return null;
    const words = isObject(body)
      ? textOf(body.error, textOf(body.message, detailOf(answer)))
      : detailOf(answer);
    return `the database ${name} does not answer: ${withoutKnownSecrets(words).slice(0, 500)}`;
  }

  async #ask(
    method: 'GET' | 'POST',
    path: string,
    body: object | undefined,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<FleetAnswer> {
    const ask = async (token: string | null): Promise<FleetAnswer> => {
      const headers = token === null ? {} : { 'X-Runner-Token': token };
      return jsonRequest({
        method,
        url: `${this.instance.manager}${path}`,
        headers,
        body,
        timeoutMs,
        signal,
      });
    };
    const token = await this.orchestrator.runnerToken();
    const answer = await ask(token);
    // A gate answers 404 to a token that it does not know.
    if (![401, 403, 404].includes(answer.status)) return answer;
    const newer = await this.orchestrator.runnerToken(token);
    return newer === token ? answer : ask(newer);
  }
}

function refused({ id }: Instance, reason: EnvironmentReason, words: string): EnvironmentError {
  return new EnvironmentError('failed', reason, `instance ${id}: ${words}`);
}
