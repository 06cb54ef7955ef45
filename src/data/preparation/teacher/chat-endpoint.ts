// Asks an OpenAI-compatible endpoint for the next message of a conversation.
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeNow } from '../../../base/awake-clock.js';
import { Backoff } from '../../../base/backoff.js';
import { httpRequest, NoAnswer } from '../../../base/http-request.js';
import { keepSecret, withoutKnownSecrets } from '../../../base/known-secrets.js';
import { InvalidSpec } from '../../../spec/invalid-spec.js';
import type { TeacherSpec } from '../../../spec/dataset-spec.js';
import { type BadReply, type ChatReply, readReply } from './chat-reply.js';

export interface ChatMessage {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

/** Limit of one request: a teacher may think for long. */
const answerWithinMs = 10 * 60_000;
/** How long the endpoint may be away, or refuse for its rate limit. */
const patienceMs = 15 * 60_000;
const pauses = [500, 30_000] as const;

/** After so many unreadable answers in a row, the try is lost. */
const maxBadReplies = 3;
/** After so many tries in a row that were lost in this way, the endpoint no longer counts as a chat endpoint. */
const maxLostTries = 5;

/** The endpoint refuses this conversation, and would refuse it again. */
export class RefusedConversation extends Error {
  override readonly name = 'RefusedConversation';
}

/** The endpoint of one preparation. */
export class ChatEndpoint {
  /** Tries lost since the last answer that was read. */
  #lostTries = 0;
  #lengthName: 'max_tokens' | 'max_completion_tokens' = 'max_tokens';

  constructor(readonly teacher: TeacherSpec) {}

  /**
   * Waits while the endpoint is away or asks for patience. `hasAnswered`: an answer of this preparation was read before. Throws `InvalidSpec`
   * for a wrong key, address or model, and for an endpoint that counts no tokens. Throws `RefusedConversation`, also after three answers in a
   * row that cannot be read. After 15 minutes, throws the last failure.
   */
  async next(
    messages: readonly ChatMessage[],
    signal: AbortSignal,
    hasAnswered: boolean,
  ): Promise<ChatReply> {
    const { url } = this.teacher;
    const backoff = new Backoff(pauses);
    const until = awakeNow() + patienceMs;
    let badReplies = 0;
    for (;;) {
      const answer = await this.#ask(messages, signal);
      if ('text' in answer) {
        this.#lostTries = 0;
        return answer;
      }
      if ('fix' in answer) {
        badReplies += 1;
        const problem = `${url} ${answer.problem}`;
        if (badReplies >= maxBadReplies) {
          this.#lostTries += 1;
          if (!hasAnswered || this.#lostTries >= maxLostTries) throw badTeacher('url', problem, answer.fix);
          throw new RefusedConversation(problem);
        }
        await sleep(backoff.next(), undefined, { signal });
        continue;
      }
      if (awakeNow() > until) {
        // If the endpoint has answered in this try, it refuses this conversation; else it is away. The error does not quote the server, whose
        // words could differ at each attempt.
        if (messages.some(({ role }) => role === 'assistant')) throw new RefusedConversation(answer.problem);
        throw new Error(`${url} has not answered for 15 minutes`);
      }
      await sleep(Math.max(backoff.next(), answer.waitMs), undefined, { signal });
    }
  }

  async #ask(
    messages: readonly ChatMessage[],
    signal: AbortSignal,
  ): Promise<ChatReply | BadReply | { problem: string; waitMs: number }> {
    const { model, temperature, max_generate_length: limit } = this.teacher;
    const lengthName = this.#lengthName;
    try {
      const response = await httpRequest(`${this.teacher.url.replace(/\/+$/, '')}/chat/completions`, {
        ...{ headers: authorization(this.teacher), timeoutMs: answerWithinMs, signal },
        body: JSON.stringify({ model, messages, temperature, stream: false, [lengthName]: limit }),
      });
      const { text } = response;
      const shown = withoutKnownSecrets(`${response.status} ${text}`).slice(0, 300);
      if (response.ok) return readReply(text);
      if (response.status === 429 || response.status >= 500) {
        const seconds = Number(response.headers.get('retry-after') ?? 0);
        return { problem: shown, waitMs: Number.isFinite(seconds) ? Math.min(seconds, 60) * 1000 : 0 };
      }
      if ([401, 403, 404].includes(response.status))
        throw badTeacher('url', `the endpoint answers ${shown}`, 'correct url, model or api_key_env');
      // Newer models of OpenAI know the limit by another name alone; others do not know that name.
      if (lengthName === 'max_tokens' && text.includes('max_completion_tokens')) {
        this.#lengthName = 'max_completion_tokens';
        return await this.#ask(messages, signal);
      }
      throw new RefusedConversation(shown);
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      return { problem: error.message, waitMs: 0 };
    }
  }
}

const reachedWithinMs = 10_000;

/** Throws `InvalidSpec` if the endpoint's address gives no answer of any kind within 10 s. */
export async function refuseSilentTeacher(teacher: TeacherSpec, signal: AbortSignal): Promise<void> {
  const until = awakeNow() + reachedWithinMs;
  const backoff = new Backoff(pauses);
  for (;;) {
    try {
      await httpRequest(`${teacher.url.replace(/\/+$/, '')}/models`, {
        headers: authorization(teacher),
        ...{ redirect: 'manual', timeoutMs: reachedWithinMs, signal },
      });
      return;
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      const problem = `${teacher.url} does not answer: ${error.message}`;
      if (awakeNow() > until) throw badTeacher('url', problem, 'start it, or correct the url');
    }
    await sleep(backoff.next(), undefined, { signal });
  }
}

function authorization({ api_key_env: variable }: TeacherSpec): Record<string, string> {
  if (variable === undefined) return {};
  const key = process.env[variable];
  if (!key)
    throw badTeacher(
      'api_key_env',
      `the variable ${variable} is not set where the orchestrator runs`,
      'export it',
    );
  keepSecret(key);
  return { authorization: `Bearer ${key}` };
}

function badTeacher(key: string, problem: string, fix: string): InvalidSpec {
  return new InvalidSpec([{ path: `teacher.${key}`, problem, fix }], 'the dataset spec');
}
