// Fleet's control plane: instances are created once for each request id, waited for, kept alive, listed and deleted.
//
// A creation is sent again with the same request id until it is answered. If Fleet has carried it out before, it answers 409 with the
// instance, which is then the one that was asked for.
import { isObject } from '../../base/json.js';
import { pause } from '../../base/abortable.js';
import { keepSecret } from '../../base/known-secrets.js';
import { awakeNow } from '../../base/awake-clock.js';
import { Backoff } from '../../base/backoff.js';
import type { EnvironmentReason } from '../../spec/records/episode.js';
import { EnvironmentError } from '../environment.js';
import { textOf } from '../tool-results.js';
import { detailOf, type FleetAnswer, type FleetRequest } from './fleet-request.js';

/** The body of `POST /v1/env/instances`; for absent members Fleet uses its defaults. */
export interface InstanceOrder {
  env_key: string;
  env_version?: string;
  data_key?: string;
  data_version?: string;
  region?: string;
  env_variables?: Readonly<Record<string, string>>;
  run_id: string;
  ttl_seconds: number;
  heartbeat_interval: number;
}

export interface Instance {
  id: string;
  /** Base of the MCP servers; ends with a slash. */
  root: string;
  /** Base of the instance's own routes. */
  manager: string;
  /** True if an earlier request with the same id made the instance. */
  adopted: boolean;
  region?: string;
  /** Region to which Fleet wants the heartbeats sent; absent: any. */
  heartbeatRegion?: string;
}

/** The instance of this request id has ended, so another id is needed. */
export class SpentRequest extends Error {}

/** The account cannot run a further instance now. A rate limit has the same kind and reason, but is no `FullAccount`. */
export class FullAccount extends EnvironmentError {}

interface CreateOptions {
  signal: AbortSignal;
  /** Called with the id of the instance as soon as Fleet names it. It exists from then on, also if `create` rejects. */
  onNamed?: (id: string) => void;
  onWait?: (reason: string) => void;
}

/** Node's `fetch` gives up after 5 minutes without headers. */
const heldS = 240;
const provisionMs = 15 * 60_000;
const pollMs: [number, number] = [500, 5_000];
const retryPauses: [number, number] = [500, 30_000];
const triesToCreate = 8;

export class Orchestrator {
  readonly #tokens: RunnerToken;

  constructor(private readonly request: FleetRequest) {
    this.#tokens = new RunnerToken(request);
  }

  /**
   * Resolves when the instance runs. Throws `SpentRequest`; `EnvironmentError` `unavailable`: `connect`, `timeout`, `capacity`; `failed`:
   * `unauthorized`, `forbidden`, or `open` if Fleet refuses the order or the instance does not start.
   */
  async create(
    order: InstanceOrder,
    requestId: string,
    { signal, onNamed = () => undefined, onWait = () => undefined }: CreateOptions,
  ): Promise<Instance> {
    const pauses = new Backoff(retryPauses);
    const body = { ...order, created_from: 'sdk', max_wait_seconds: heldS };
    const giveUpAt = awakeNow() + provisionMs;
    const waiting = { giveUpAt, signal, onWait };
    for (let tries = 1; ;) {
      onWait(`Fleet makes an instance of ${order.env_key}`);
      try {
        const options = { requestId, signal, timeoutMs: (heldS + 30) * 1000 };
        const answer = await this.request('POST', '/v1/env/instances', body, options);
        const duplicate = duplicateOf(answer);
        // Fleet still carries out the first request, so its instance has no name yet.
        if (duplicate === '' && awakeNow() <= giveUpAt) {
          await pause(pauses.next(), signal);
          continue;
        }
        if (!duplicate && answer.status >= 300) throw errorOf(answer);
        const id = duplicate ?? idOf(answer);
        onNamed(id);
        return await this.#running(id, duplicate !== null, waiting, duplicate === null ? answer : undefined);
      } catch (error) {
        const isAway = error instanceof EnvironmentError && error.kind === 'unavailable';
        if (!isAway || error.reason === 'capacity') throw error;
        // An endpoint that always answers with an error does not count as an outage, or the episode would wait for ever.
        if (tries++ >= triesToCreate || awakeNow() > giveUpAt)
          throw error.cause === undefined ? await this.chargeable(error, 'open') : error;
      }
      await pause(pauses.next(), signal);
    }
  }

  /**
   * Decides how a failure counts. It is an outage while Fleet does not answer. After a temporary refusal, or the end of the instance `id`, it is
   * free at first (`socket_lost`). Anything else is charged with `reason`.
   */
  async chargeable(
    cause: EnvironmentError,
    reason: EnvironmentReason,
    id?: string,
  ): Promise<EnvironmentError> {
    const { message } = cause;
    try {
      await this.account();
      const hasEnded = id !== undefined && (await this.status(id)) !== 'running';
      const isFree = hasEnded || cause.kind === 'unavailable';
      return isFree
        ? new EnvironmentError('unavailable', 'socket_lost', message, { cause })
        : new EnvironmentError('failed', reason, message, { cause });
    } catch (error) {
      if (error instanceof EnvironmentError && error.kind === 'failed') return error;
      return new EnvironmentError('unavailable', 'connect', message, { cause });
    }
  }

  /** Resolves when the instance is gone, also if it was gone before. */
  async delete(id: string, timeoutMs = 30_000): Promise<void> {
    const answer = await this.request('DELETE', `/v1/env/instances/${id}`, undefined, { timeoutMs });
    if (answer.status >= 300 && answer.status !== 404 && answer.status !== 410) throw errorOf(answer);
  }

  /** Ids of the running instances that carry this `run_id`. */
  async running(runId: string, signal?: AbortSignal): Promise<string[]> {
    const path = `/v1/env/instances?run_id=${encodeURIComponent(runId)}`;
    const answer = await this.request('GET', path, undefined, signal ? { signal } : {});
    if (answer.status >= 300 || !Array.isArray(answer.body)) throw errorOf(answer);
    const all: unknown[] = answer.body;
    return all
      .filter(isObject)
      .filter(({ status, run_id }) => run_id === runId && !hasEnded(status))
      .map(({ instance_id }) => textOf(instance_id, ''));
  }

  async heartbeat({ id, heartbeatRegion }: Pick<Instance, 'id' | 'heartbeatRegion'>): Promise<void> {
    const body = heartbeatRegion === undefined ? {} : { region: heartbeatRegion };
    const path = `/v1/env/instances/${id}/heartbeat`;
    const answer = await this.request('POST', path, body, { timeoutMs: 20_000 });
    if (answer.status >= 300) throw errorOf(answer);
  }

  /** `running`, `stopped`, …; null if Fleet does not know the instance. */
  async status(id: string, signal?: AbortSignal): Promise<string | null> {
    const answer = await this.request('GET', `/v1/env/instances/${id}`, undefined, signal ? { signal } : {});
    if (answer.status === 404) return null;
    if (answer.status >= 300 || !isObject(answer.body)) throw errorOf(answer);
    return textOf(answer.body.status, '');
  }

  /** The most instances of the key's team, and how many run. */
  async account(signal?: AbortSignal): Promise<{ limit: number; running: number }> {
    const answer = await this.request('GET', '/v1/account', undefined, signal ? { signal } : {});
    if (answer.status >= 300 || !isObject(answer.body)) throw errorOf(answer);
    const { instance_limit: limit, instance_count: running } = answer.body;
    return {
      limit: typeof limit === 'number' ? limit : Infinity,
      running: typeof running === 'number' ? running : 0,
    };
  }

  async regions(signal?: AbortSignal): Promise<string[]> {
    const answer = await this.request('GET', '/v1/regions', undefined, signal ? { signal } : {});
    if (answer.status >= 300 || !Array.isArray(answer.body)) throw errorOf(answer);
    return answer.body.map(String);
  }

  /** Versions and the default one; null if there is no such environment. */
  async environment(
    envKey: string,
    signal?: AbortSignal,
  ): Promise<{ versions: string[]; default: string | null } | null> {
    const path = `/v1/env/${encodeURIComponent(envKey)}`;
    const answer = await this.request('GET', path, undefined, signal ? { signal } : {});
    if (answer.status === 404 || answer.status === 400) return null;
    if (answer.status >= 300 || !isObject(answer.body)) throw errorOf(answer);
    const { versions, default_version } = answer.body;
    return {
      versions: isObject(versions) ? Object.keys(versions) : [],
      default: typeof default_version === 'string' ? default_version : null,
    };
  }

  /** The value of `X-Runner-Token` for an instance's own routes; null if Fleet gives none. `refused`: a token that was not accepted. */
  runnerToken(refused?: string | null): Promise<string | null> {
    return this.#tokens.get(refused);
  }

  async #running(
    id: string,
    adopted: boolean,
    { giveUpAt, signal, onWait }: Waiting,
    created?: FleetAnswer,
  ): Promise<Instance> {
    const pauses = new Backoff(pollMs);
    // A creation may be delayed for minutes, and an adopted instance may have had no heartbeats for as long.
    let beatAt = -Infinity;
    for (let answer = created; ; answer = undefined) {
      answer ??= await this.request('GET', `/v1/env/instances/${id}`, undefined, { signal });
      let status: unknown = 'not shown yet';
      if (answer.status === 404 && adopted) throw new SpentRequest(id);
      // After a rate limit the same instance is asked for again: giving it up would lead to another creation.
      if (answer.status !== 429) {
        if (answer.status >= 300 || !isObject(answer.body)) throw errorOf(answer);
        status = answer.body.status;
        if (hasEnded(status)) {
          if (adopted) throw new SpentRequest(id);
          throw new EnvironmentError('failed', 'open', `the instance ${id} did not start: ${String(status)}`);
        }
        if (awakeNow() - beatAt > 60_000) {
          beatAt = awakeNow();
          void this.heartbeat({ id, ...heartbeatRegionOf(answer.body) }).catch(() => undefined);
        }
        if (status === 'running') return instanceOf(answer.body, id, adopted);
      }
      if (awakeNow() > giveUpAt) {
        if (answer.status === 429) throw errorOf(answer);
        const words = `the instance ${id} is still ${String(status)} after ${provisionMs / 60_000} minutes`;
        throw new EnvironmentError('failed', 'open', words);
      }
      onWait(`the instance ${id} is ${String(status)}`);
      await pause(pauses.next(), signal);
    }
  }
}

interface Waiting {
  giveUpAt: number;
  signal: AbortSignal;
  onWait: (reason: string) => void;
}

class RunnerToken {
  #token: Promise<string | null> | undefined;

  constructor(private readonly request: FleetRequest) {}

  async get(refused?: string | null): Promise<string | null> {
    const held = this.#token;
    // Of several refused requests only the first asks for a new token.
    if (
      held &&
      refused !== undefined &&
      (await held.catch(() => undefined)) === refused &&
      this.#token === held
    )
      this.#token = undefined;
    this.#token ??= this.#ask().catch((error: unknown) => {
      // Without an answer nothing is known about the token.
      this.#token = undefined;
      throw error;
    });
    return this.#token;
  }

  async #ask(): Promise<string | null> {
    const own = process.env.RUNNER_AUTH_TOKEN?.trim();
    if (own) {
      keepSecret(own);
      return own;
    }
    const answer = await this.request('GET', '/v1/runner-auth/token', undefined, { timeoutMs: 10_000 });
    // This service needs no token.
    if (answer.status === 404) return null;
    if (answer.status !== 200 || !isObject(answer.body)) throw errorOf(answer);
    const token = textOf(answer.body.token, '').trim();
    if (token === '') return null;
    keepSecret(token);
    return token;
  }
}

function instanceOf(body: Record<string, unknown>, id: string, adopted: boolean): Instance {
  const urls = isObject(body.urls) ? body.urls : {};
  const manager = isObject(urls.manager) ? urls.manager.api : undefined;
  if (typeof urls.root !== 'string' || typeof manager !== 'string')
    throw new EnvironmentError('failed', 'open', `Fleet gives no address of the instance ${id}`);
  return {
    ...{ id, root: urls.root.replace(/\/*$/, '/'), manager: manager.replace(/\/+$/, ''), adopted },
    ...(typeof body.region === 'string' ? { region: body.region } : {}),
    ...heartbeatRegionOf(body),
  };
}

function heartbeatRegionOf({ heartbeat_region: region }: Record<string, unknown>): {
  heartbeatRegion?: string;
} {
  return typeof region === 'string' && region !== '' ? { heartbeatRegion: region } : {};
}

const hasEnded = (status: unknown): boolean => status === 'error' || status === 'stopped';

function idOf({ body }: FleetAnswer): string {
  const id = isObject(body) ? body.instance_id : undefined;
  if (typeof id === 'string') return id;
  throw new EnvironmentError('failed', 'open', 'Fleet’s answer names no instance');
}

/** The instance of an earlier request with this id; empty if Fleet does not name it; null if there is no such request. */
function duplicateOf({ status, body }: FleetAnswer): string | null {
  const detail = isObject(body) ? body.detail : undefined;
  if (status !== 409 || !isObject(detail) || detail.error !== 'duplicate_request_id') return null;
  return textOf(detail.instance_id, '');
}

/** The errors for refusals: after them a person must act, or the episode waits for a place or for Fleet. */
function errorOf(answer: FleetAnswer): EnvironmentError {
  const { status, body } = answer;
  const words = `Fleet: ${detailOf(answer)}`;
  const detail = isObject(body) && isObject(body.detail) ? body.detail : {};
  const isLimit =
    detail.error_type === 'instance_limit_exceeded' || /instance limit|running instances/i.test(words);
  if (status === 403 && isLimit && detail.instance_limit !== 0)
    return new FullAccount('unavailable', 'capacity', words);
  if (status === 401) return new EnvironmentError('failed', 'unauthorized', words);
  if (status === 403) return new EnvironmentError('failed', 'forbidden', words);
  if (status === 429) return new EnvironmentError('unavailable', 'capacity', words);
  return status >= 500
    ? new EnvironmentError('unavailable', 'connect', words)
    : new EnvironmentError('failed', 'open', words);
}
