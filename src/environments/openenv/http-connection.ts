// The session of a server without `/ws`: one world that the server keeps between `POST /reset` and `POST /step`. Whoever resets it takes it, so
// only one episode may be open at a time, and after each step `GET /state` must show that the world is still this episode's: some servers
// keep no world between requests, and other clients may have reset it. The server's bare 500 is an exception of the environment; a proxy
// says 502, 503 or 504.
import { isObject, numberIn, parseServerJson, writeJson } from '../../base/json.js';
import { httpRequest, type NoAnswer } from '../../base/http-request.js';
import { EnvironmentError } from '../environment.js';
import { ErrorFrame, type OpenEnvConnection, type ReplyFrame } from './openenv-connection.js';
import { textOf } from '../tool-results.js';

export class HttpConnection implements OpenEnvConnection {
  readonly sessionId = undefined;
  censor = (text: string): string => text;
  onIdleEnd: (() => void) | undefined;
  #ended = false;
  #isLost = false;
  #requests = 0;
  /** The newest reset, and the steps since. */
  #world: { episode: unknown; steps: number } = { episode: undefined, steps: 0 };
  readonly #ending = new AbortController();

  constructor(
    private readonly url: string,
    private readonly headers: Readonly<Record<string, string>> = {},
  ) {}

  get endedByUs(): boolean {
    return this.#ended;
  }

  get usable(): boolean {
    return !this.#ended && !this.#isLost;
  }

  newKey(): string {
    return String(++this.#requests);
  }

  async request(frame: Record<string, unknown>, timeoutMs: number): Promise<ReplyFrame> {
    if (this.#ended) throw this.#lost('was closed on this side');
    const { type, data } = frame;
    if (type === 'reset') {
      const reply = await this.#send('reset', data ?? {}, timeoutMs);
      this.#world = { episode: (data as { episode_id?: unknown } | undefined)?.episode_id, steps: 0 };
      return reply;
    }
    if (type === 'step') {
      const reply = await this.#send('step', { action: data }, timeoutMs);
      this.#world.steps += 1;
      this.#refuseOtherWorld((await this.#send('state', undefined, timeoutMs)).data);
      return reply;
    }
    throw new ErrorFrame('UNKNOWN_TYPE', `a server without /ws knows no ${textOf(type, '')} frame`, {});
  }

  close(): void {
    this.terminate();
  }

  closed(): Promise<void> {
    this.terminate();
    return Promise.resolve();
  }

  terminate(): void {
    this.#ended = true;
    this.#ending.abort();
  }

  leave(): void {
    this.terminate();
  }

  /** Refuses another episode's world, because its grade would be wrong. */
  #refuseOtherWorld({ episode_id, step_count }: Record<string, unknown>): void {
    const { episode, steps } = this.#world;
    const isNamed = typeof episode_id === 'string' && episode_id === episode;
    const isCounted = numberIn(step_count) === steps;
    // A server that does not count steps gives 0, or no step_count.
    if (
      isNamed
        ? isCounted || !(numberIn(step_count) ?? step_count)
        : isCounted && typeof episode_id !== 'string'
    )
      return;
    throw new EnvironmentError(
      'failed',
      'world',
      `${this.url} shows another world than this episode's after ${steps} ${steps === 1 ? 'step' : 'steps'} ` +
        `(episode_id ${writeJson(episode_id)}, step_count ${writeJson(step_count)}): it keeps no world between requests, another ` +
        'client has reset it, or its /state does not give the episode_id of the reset',
    );
  }

  async #send(call: 'reset' | 'step' | 'state', body: unknown, timeoutMs: number): Promise<ReplyFrame> {
    const answer = await httpRequest(`${this.url.replace(/\/+$/, '')}/${call}`, {
      ...{ headers: this.headers, timeoutMs, signal: this.#ending.signal },
      ...(body === undefined ? {} : { body: writeJson(body) }),
    }).catch((error: NoAnswer) => {
      this.#isLost = true;
      if (this.#ended || error.reason !== 'timeout')
        throw this.#lost(`does not answer: ${error.message}`, call);
      throw new EnvironmentError(
        'unavailable',
        'timeout',
        `the environment server ${this.url} did not answer within ${timeoutMs} ms`,
      );
    });
    return this.#replyOf(call, answer.status, this.censor(answer.text));
  }

  #replyOf(call: string, status: number, text: string): ReplyFrame {
    const data = parsed(text);
    if (status === 200 && data !== null) return { type: 'observation', data };
    const detail = (data === null ? text : writeJson(data.detail ?? data)).slice(0, 500);
    if (status === 401 || status === 403) throw unauthorized(this.url, status);
    if (status === 429 || status > 500) throw this.#lost(`answers ${call} with ${status}: ${detail}`, call);
    const code = status === 422 ? 'VALIDATION_ERROR' : 'EXECUTION_ERROR';
    throw new ErrorFrame(code, `${status} ${detail}`, { errors: data?.detail });
  }

  /** Before the reset nothing is lost but time: the episode has not begun. */
  #lost(how: string, call?: string): EnvironmentError {
    const reason = call === 'reset' ? 'connect' : 'socket_lost';
    return new EnvironmentError('unavailable', reason, `the environment server ${this.url} ${how}`);
  }
}

export function unauthorized(url: string, status: number): EnvironmentError {
  return new EnvironmentError(
    'failed',
    'unauthorized',
    `${url} answers ${status}: put the headers that it asks for into a variable of the workers, and name it in environments[].headers_env`,
  );
}

function parsed(text: string): Record<string, unknown> | null {
  try {
    const value = parseServerJson(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}
