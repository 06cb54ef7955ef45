// The calls to Slack that a thread needs, through Slack's own client. Each call is tried once and ends within its deadline. The thread
// decides when to try again, because only it knows whether a message may already exist.
import { type FetchFunction, LogLevel, WebClient, type Logger } from '@slack/web-api';
import { httpRequest } from '../../base/http-request.js';
import { withoutSecrets } from '../../base/secrets.js';
import type { MessageBlock } from './blocks.js';
import { pause } from '../../base/abortable.js';
import { failureOf, type Names, SlackCallFailed, type SlackFailure } from './slack-failure.js';

export interface SlackAccess {
  /** Called again after Slack refuses a token, because a token may be replaced while a run continues. */
  token: () => string | Promise<string>;
  /** Where the token comes from, for error messages. */
  tokenName: string;
  /** `#name`, `name` or an id such as `C0123456789`. */
  channel: string;
  /** API address of another workspace (GovSlack), or of a test. */
  apiUrl?: string;
  callTimeoutMs?: number;
  /** Total time to wait for rate limits while results are read page by page. */
  pagingPatienceMs?: number;
}

/** Identifies one of a channel's messages to programs that read metadata; people do not see it. */
export interface Mark {
  run: string;
  /** Distinguishes runs with the same name in different stores. */
  key: string;
  id: string;
}

interface MarkedMessage {
  ts: string;
  mark: Mark;
}

interface Outgoing {
  text: string;
  blocks: MessageBlock[];
  mark: Mark;
}

interface Identity {
  /** User name of the bot. */
  bot: string;
  team: string;
  /** Scopes of the token; null if Slack does not list them. */
  scopes: string[] | null;
}

const eventType = 'longhaul_run_event';
const callTimeoutMs = 10_000;
/** Larger than any page of messages. */
const largestAnswerBytes = 32 << 20;
/** Slack recommends at most 200, and returns fewer to some apps. */
const pageSize = 200;
const pagingPatienceMs = 10 * 60_000;
const channelId = /^[CGD][A-Z0-9]{6,}$/;

export class SlackApi {
  // Hidden with `#`, because both contain the token, which must not appear when this object is logged.
  #client: WebClient | null = null;
  /** The token of `#client`; removed from failures, because an answer may quote it. */
  #secret: string | undefined;
  private bot: string | null = null;

  constructor(
    private readonly access: SlackAccess,
    private readonly stop: AbortSignal,
  ) {}

  async whoAmI(): Promise<Identity> {
    const answer = await this.call('auth.test', (client) => client.auth.test());
    this.bot = answer.user ?? null;
    return {
      bot: answer.user ?? 'your-bot',
      team: answer.team ?? 'an unnamed workspace',
      scopes: answer.response_metadata?.scopes ?? null,
    };
  }

  /** Id of the channel; a name is looked up among the bot's channels. */
  async channelId(): Promise<string> {
    const { channel } = this.access;
    if (channelId.test(channel)) return channel;
    const name = channel.replace(/^#/, '');
    try {
      return await this.channelNamed(name, 'public_channel,private_channel');
    } catch (error) {
      if (!isMissingScope(error)) throw error;
      // An app that may not list private channels may still list the public ones.
      return this.channelNamed(name, 'public_channel');
    }
  }

  /** Returns the message's `ts`, which identifies it. */
  async post(
    channel: string,
    message: Outgoing,
    thread: { root: string; broadcast: boolean } | null,
  ): Promise<string> {
    const content = { channel, ...contentOf(message), unfurl_links: false, unfurl_media: false };
    const answer = await this.call('chat.postMessage', (client) =>
      client.chat.postMessage(
        thread === null ? content : { ...content, thread_ts: thread.root, reply_broadcast: thread.broadcast },
      ),
    );
    return required('chat.postMessage', answer.ts);
  }

  async update(channel: string, ts: string, message: Outgoing): Promise<void> {
    await this.call('chat.update', (client) =>
      client.chat.update({ channel, ts, ...contentOf(message), parse: 'none' }),
    );
  }

  /** Messages of the thread that have a mark of ours and are later than `after`, oldest first. */
  replies(channel: string, root: string, after: string | null): AsyncGenerator<MarkedMessage> {
    return this.messages('conversations.replies', (client, cursor) =>
      client.conversations.replies({
        channel,
        ts: root,
        include_all_metadata: true,
        limit: pageSize,
        ...(after === null ? {} : { oldest: after }),
        ...cursor,
      }),
    );
  }

  /** Messages of the channel, outside threads, that have a mark of ours and are later than `oldest`, newest first. */
  history(channel: string, oldest: Date): AsyncGenerator<MarkedMessage> {
    return this.messages('conversations.history', (client, cursor) =>
      client.conversations.history({
        channel,
        oldest: (oldest.getTime() / 1000).toFixed(6),
        include_all_metadata: true,
        limit: pageSize,
        ...cursor,
      }),
    );
  }

  /** Checks that the channel's messages can be read: otherwise it is unknown which messages already exist. */
  async readsHistory(channel: string): Promise<void> {
    await this.call('conversations.history', (client) => client.conversations.history({ channel, limit: 1 }));
  }

  /** Uploads a file and returns its id. The file is invisible until a message names it. */
  async upload(png: Uint8Array, name: string, altText: string): Promise<string> {
    const answer = await this.call('files.uploadV2', (client) =>
      client.filesUploadV2({ file: Buffer.from(png), filename: name, title: name, alt_text: altText }),
    );
    return required('files.uploadV2', answer.files[0]?.files?.[0]?.id);
  }

  private async channelNamed(name: string, types: string): Promise<string> {
    const pages = this.pages('users.conversations', (client, cursor) =>
      client.users.conversations({ types, exclude_archived: false, limit: pageSize, ...cursor }),
    );
    for await (const { channels = [] } of pages) {
      const found = channels.find((one) => one.name === name)?.id;
      if (found !== undefined) return found;
    }
    throw new SlackCallFailed('users.conversations', {
      kind: 'lasting',
      code: 'not_in_channel',
      reason: `the bot is in no channel #${name}`,
      fix: `correct the name, or invite the bot: /invite @${this.names().bot ?? 'your-bot'} in #${name}`,
    });
  }

  private async *messages(
    method: string,
    page: (client: WebClient, cursor: Cursor) => Promise<MessagePage>,
  ): AsyncGenerator<MarkedMessage> {
    for await (const { messages = [] } of this.pages(method, page)) yield* messages.flatMap(marked);
  }

  private async *pages<Answer extends Page>(
    method: string,
    page: (client: WebClient, cursor: Cursor) => Promise<Answer>,
  ): AsyncGenerator<Answer> {
    const patience = { leftMs: this.access.pagingPatienceMs ?? pagingPatienceMs };
    for (let cursor: Cursor = {}; ;) {
      const given = cursor;
      const answer = await this.patiently(patience, () => this.call(method, (client) => page(client, given)));
      yield answer;
      const next = answer.response_metadata?.next_cursor ?? '';
      if (next === '') return;
      cursor = { cursor: next };
    }
  }

  /** Waits while Slack limits the rate: starting again at the first page would never reach the last of many pages. */
  private async patiently<Answer>(
    patience: { leftMs: number },
    call: () => Promise<Answer>,
  ): Promise<Answer> {
    for (;;) {
      try {
        return await call();
      } catch (error) {
        const failure = error instanceof SlackCallFailed ? error.failure : null;
        if (failure?.kind !== 'limited' || failure.pauseMs > patience.leftMs) throw error;
        patience.leftMs -= failure.pauseMs;
        await pause(failure.pauseMs, this.stop);
      }
    }
  }

  /** Throws `SlackCallFailed`, or the reason of `stop`. */
  private async call<Answer>(method: string, call: (client: WebClient) => Promise<Answer>): Promise<Answer> {
    this.stop.throwIfAborted();
    try {
      this.#client ??= this.connect(await this.token());
      return await call(this.#client);
    } catch (error) {
      this.stop.throwIfAborted();
      if (error instanceof SlackCallFailed) throw error;
      const failure = failureOf(error, this.names());
      if (failure.kind === 'lasting') this.#client = null;
      throw new SlackCallFailed(method, this.discreet(failure));
    }
  }

  private discreet(failure: SlackFailure): SlackFailure {
    return { ...failure, reason: withoutSecrets(failure.reason, [this.#secret]) };
  }

  private async token(): Promise<string> {
    const { token, tokenName } = this.access;
    let given: string;
    try {
      given = (await token()).trim();
    } catch {
      // The error is dropped, because it may contain the token.
      given = '';
    }
    // A header cannot contain other characters, and the resulting error would quote the token.
    if (/^[\x21-\x7e]+$/.test(given)) return given;
    throw new SlackCallFailed('auth.test', {
      kind: 'lasting',
      code: 'not_authed',
      reason: `${tokenName} ${given === '' ? 'is empty' : 'does not hold a token'}`,
      fix: `put the bot token of the Slack app (it begins with xoxb-) into ${tokenName}`,
    });
  }

  private connect(token: string): WebClient {
    this.#secret = token;
    const deadlineMs = this.access.callTimeoutMs ?? callTimeoutMs;
    return new WebClient(token, {
      ...(this.access.apiUrl === undefined ? {} : { slackApiUrl: this.access.apiUrl }),
      // The client would repeat a post whose answer was lost, and so post twice. It would also sleep for as long as Slack asks.
      retryConfig: { retries: 0 },
      rejectRateLimitedCalls: true,
      // The client's own time limit does not cover the body.
      fetch: (url, init) => this.fetch(url, init, deadlineMs),
      logger: silence,
    });
  }

  private async fetch(...[url, init, timeoutMs]: [...Parameters<FetchFunction>, number]): Promise<Response> {
    const { signal: _own, ...request } = init ?? {};
    const limits = { timeoutMs, signal: this.stop, maxBytes: largestAnswerBytes };
    const { status, headers, bytes } = await httpRequest(url, { ...request, ...limits });
    // A response with one of these statuses must not have a body.
    return new Response([204, 205, 304].includes(status) ? null : bytes, { status, headers });
  }

  private names(): Names {
    return { channel: this.access.channel, token: this.access.tokenName, bot: this.bot };
  }
}

interface Cursor {
  cursor?: string;
}

interface Page {
  response_metadata?: { next_cursor?: string };
}

interface MessagePage extends Page {
  messages?: { ts?: string; metadata?: { event_type?: string; event_payload?: unknown } }[];
}

function contentOf({ text, blocks, mark }: Outgoing) {
  return { text, blocks, metadata: { event_type: eventType, event_payload: { ...mark } } };
}

function marked({ ts, metadata }: NonNullable<MessagePage['messages']>[number]): MarkedMessage[] {
  if (ts === undefined || metadata?.event_type !== eventType) return [];
  const { run, key, id } = (metadata.event_payload ?? {}) as Record<string, unknown>;
  if (typeof run !== 'string' || typeof key !== 'string' || typeof id !== 'string') return [];
  return [{ ts, mark: { run, key, id } }];
}

/** A field of a successful answer; without it, the result of the call is unknown. */
function required(method: string, value: string | undefined): string {
  if (value !== undefined && value !== '') return value;
  throw new SlackCallFailed(method, { kind: 'passing', reason: 'an answer that did not come from Slack' });
}

export function isMissingScope(error: unknown): boolean {
  return (
    error instanceof SlackCallFailed &&
    error.failure.kind === 'lasting' &&
    error.failure.code === 'missing_scope'
  );
}

/** The client's log lines add nothing to the failures, and might quote what was sent. */
const silence: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  setLevel: () => undefined,
  getLevel: () => LogLevel.ERROR,
  setName: () => undefined,
};
