// Slack's Web API as far as a run's thread needs it, over HTTP on a free port of 127.0.0.1. It enforces Slack's rules, and can break each
// call before or after the call takes effect.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { blockComplaints } from './slack-rules.js';
import { type Answer, SlackUploads } from './slack-uploads.js';

export interface StoredMessage {
  ts: string;
  thread: string | null;
  broadcast: boolean;
  text: string;
  blocks: { type: string; [key: string]: unknown }[];
  metadata: { event_type: string; event_payload: Record<string, unknown> } | null;
  /** Id of the app that posted the message. */
  bot: string;
  edits: number;
}

export interface Channel {
  id: string;
  name: string;
  private: boolean;
  archived: boolean;
  /** True if the bot is a member. */
  member: boolean;
  /** True if an admin has restricted posting. */
  restricted: boolean;
  messages: StoredMessage[];
}

/** `stored`: the call takes effect although its answer goes wrong. `lateMs`: the effect comes this many ms after the wrong answer. */
export type Fault =
  | { kind: 'hang'; stored: boolean }
  | { kind: 'reset'; stored: boolean; lateMs?: number }
  | { kind: 'status'; status: number; stored: boolean }
  | { kind: 'error'; error: string; stored: boolean; messages?: string[] }
  | { kind: 'limited'; seconds: number }
  | { kind: 'proxy page' };

export interface Call {
  method: string;
  arguments: Record<string, string>;
}

const allScopes = [
  'chat:write',
  'channels:history',
  'groups:history',
  'channels:read',
  'groups:read',
  'files:write',
];
const neededScopes: Record<string, string[]> = {
  'chat.postMessage': ['chat:write'],
  'chat.update': ['chat:write'],
  'conversations.history': ['channels:history'],
  'conversations.replies': ['channels:history'],
  'files.getUploadURLExternal': ['files:write'],
  'files.completeUploadExternal': ['files:write'],
};

export class SlackServer {
  readonly token = 'xoxb-1111-test/Secret+Token';
  readonly bot = 'longhaul';
  /** Error that the token gets; null if the token is valid. */
  tokenError: string | null = null;
  scopes = [...allScopes];
  /** Minimum time between two messages of a channel, in ms. */
  postEveryMs = 0;
  largestPage = 999;
  /** Decides how a call goes wrong; null if the call succeeds. */
  fault: (call: Call) => Fault | null = () => null;
  readonly calls: Call[] = [];
  readonly channels: Channel[] = [];
  readonly uploads = new SlackUploads();
  private readonly server: Server;
  private lastTs = 0;
  private readonly lastPost = new Map<string, number>();

  private constructor() {
    this.server = createServer((request, response) => {
      void this.serve(request, response).catch(() => request.socket.destroy());
    });
  }

  static async start(): Promise<SlackServer> {
    const server = new SlackServer();
    server.addChannel('training');
    await new Promise<void>((resolve) => server.server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/api/`;
  }

  get training(): Channel {
    return this.channels[0]!;
  }

  addChannel(name: string, traits: Partial<Channel> = {}): Channel {
    const channel: Channel = {
      id: `C00000000${this.channels.length}`,
      name,
      private: false,
      archived: false,
      member: true,
      restricted: false,
      messages: [],
      ...traits,
    };
    this.channels.push(channel);
    return channel;
  }

  /** Posts a message of a person or of another app. */
  say(channel: Channel, text: string, metadata: StoredMessage['metadata'] = null): StoredMessage {
    return this.store(channel, { text, metadata, bot: 'somebody else' });
  }

  callsOf(method: string): Call[] {
    return this.calls.filter((call) => call.method === method);
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const body = Buffer.concat(pieces);
    const [, root, method = ''] = (request.url ?? '').split('/');
    const call: Call = {
      method: root === 'upload' ? 'upload' : method,
      arguments:
        root === 'upload' ? { file: method } : Object.fromEntries(new URLSearchParams(body.toString())),
    };
    this.calls.push(call);
    const fault = this.fault(call);
    const work = (): Promise<{
      status: number;
      answer: Answer | string;
      headers?: Record<string, string>;
    }> => (root === 'upload' ? this.uploads.receive(method, request, body) : this.answer(request, call));
    if (fault === null) return send(response, await work());
    switch (fault.kind) {
      case 'limited':
        return send(response, tooMany(fault.seconds));
      case 'proxy page':
        return send(response, { status: 200, answer: '<html>Sign in to the proxy</html>' });
      case 'hang':
        if (fault.stored) await work();
        return;
      case 'reset':
        if (fault.stored && fault.lateMs === undefined) await work();
        request.socket.resetAndDestroy();
        if (fault.stored && fault.lateMs !== undefined) {
          await sleep(fault.lateMs);
          await work();
        }
        return;
      case 'status':
        if (fault.stored) await work();
        return send(response, { status: fault.status, answer: 'upstream failed' });
      case 'error':
        if (fault.stored) await work();
        return send(response, {
          status: 200,
          answer: { ok: false, error: fault.error, response_metadata: { messages: fault.messages ?? [] } },
        });
    }
  }

  private async answer(
    request: IncomingMessage,
    call: Call,
  ): Promise<{ status: number; answer: Answer; headers?: Record<string, string> }> {
    const headers = { 'x-oauth-scopes': this.scopes.join(',') };
    const refused = (error: string, more: object = {}) => ({
      status: 200,
      answer: { ok: false, error, ...more },
      headers,
    });
    const authorization = request.headers.authorization;
    if (authorization === undefined) return refused('not_authed');
    if (authorization !== `Bearer ${this.token}`) return refused('invalid_auth');
    if (this.tokenError !== null) return refused(this.tokenError);
    const needed = this.needed(call);
    if (!needed.every((scope) => this.scopes.includes(scope)))
      return refused('missing_scope', { needed: needed.join(','), provided: this.scopes.join(',') });
    const result = this.do(call);
    if (typeof result === 'number')
      return { ...tooMany(result), headers: { ...tooMany(result).headers, ...headers } };
    if (typeof result === 'string') return refused(result);
    return { status: 200, answer: result, headers };
  }

  private needed({ method, arguments: given }: Call): string[] {
    if (method === 'users.conversations')
      return (given.types ?? 'public_channel')
        .split(',')
        .map((type) => (type === 'private_channel' ? 'groups:read' : 'channels:read'));
    const needed = neededScopes[method] ?? [];
    const isPrivate = this.channels.find(({ id }) => id === given.channel)?.private ?? false;
    return needed.map((scope) => (isPrivate && scope === 'channels:history' ? 'groups:history' : scope));
  }

  /** The answer, or the code of an error, or the number of seconds to wait. */
  private do({ method, arguments: given }: Call): Answer | string | number {
    switch (method) {
      case 'auth.test':
        return { ok: true, user: this.bot, team: 'Test Team', user_id: 'U000000001', bot_id: 'B000000001' };
      case 'users.conversations':
        return this.memberships(given);
      case 'chat.postMessage':
        return this.post(given);
      case 'chat.update':
        return this.update(given);
      case 'conversations.history':
        return this.history(given);
      case 'conversations.replies':
        return this.replies(given);
      case 'files.getUploadURLExternal':
        return this.uploads.offer(given, this.url);
      case 'files.completeUploadExternal':
        return this.uploads.complete(given);
      default:
        return 'unknown_method';
    }
  }

  private memberships(given: Record<string, string>): Answer {
    const types = (given.types ?? 'public_channel').split(',');
    const all = this.channels.filter(
      (channel) => channel.member && types.includes(channel.private ? 'private_channel' : 'public_channel'),
    );
    const { page, next } = this.page(all, given);
    return {
      ok: true,
      channels: page.map(({ id, name }) => ({ id, name })),
      response_metadata: { next_cursor: next },
    };
  }

  private post(given: Record<string, string>): Answer | string | number {
    const channel = this.channel(given.channel);
    if (typeof channel === 'string') return channel;
    if (channel.archived) return 'is_archived';
    if (channel.restricted) return 'restricted_action';
    const content = this.content(given);
    if ('ok' in content) return content;
    const now = Date.now();
    const free = (this.lastPost.get(channel.id) ?? -Infinity) + this.postEveryMs;
    if (now < free) return Math.max(1, Math.ceil((free - now) / 1000));
    this.lastPost.set(channel.id, now);
    const thread = given.thread_ts ?? null;
    if (thread !== null && !channel.messages.some(({ ts }) => ts === thread)) return 'thread_not_found';
    const broadcast = given.reply_broadcast === 'true';
    const message = this.store(channel, { ...content, thread, broadcast, bot: this.bot });
    return { ok: true, channel: channel.id, ts: message.ts, message: { text: message.text } };
  }

  private update(given: Record<string, string>): Answer | string {
    const channel = this.channel(given.channel);
    if (typeof channel === 'string') return channel;
    const message = channel.messages.find(({ ts }) => ts === given.ts);
    if (!message) return 'message_not_found';
    if (message.bot !== this.bot) return 'cant_update_message';
    const content = this.content(given);
    if ('ok' in content) return content;
    const { text, blocks, metadata } = content;
    Object.assign(message, {
      text,
      blocks,
      metadata: metadata ?? message.metadata,
      edits: message.edits + 1,
    });
    return { ok: true, channel: channel.id, ts: message.ts, text };
  }

  private history(given: Record<string, string>): Answer | string {
    const channel = this.channel(given.channel);
    if (typeof channel === 'string') return channel;
    const found = channel.messages
      .filter(({ thread, broadcast, ts }) => (thread === null || broadcast) && ts > (given.oldest ?? '0'))
      .toReversed();
    return this.messages(found, given);
  }

  private replies(given: Record<string, string>): Answer | string {
    const channel = this.channel(given.channel);
    if (typeof channel === 'string') return channel;
    if (!channel.messages.some(({ ts }) => ts === given.ts)) return 'thread_not_found';
    const found = channel.messages.filter(
      ({ ts, thread }) => ts === given.ts || (thread === given.ts && ts > (given.oldest ?? '0')),
    );
    return this.messages(found, given);
  }

  private messages(found: StoredMessage[], given: Record<string, string>): Answer | string {
    if (Number(given.limit ?? 100) > 999) return 'invalid_limit';
    const { page, next } = this.page(found, given);
    const withMetadata = given.include_all_metadata === 'true';
    return {
      ok: true,
      messages: page.map(({ ts, text, thread, metadata }) => ({
        type: 'message',
        ts,
        text,
        ...(thread === null ? {} : { thread_ts: thread }),
        ...(withMetadata && metadata !== null ? { metadata } : {}),
      })),
      has_more: next !== '',
      response_metadata: { next_cursor: next },
    };
  }

  private page<T>(all: T[], given: Record<string, string>): { page: T[]; next: string } {
    const start = given.cursor === undefined ? 0 : Number(Buffer.from(given.cursor, 'base64').toString());
    const end = start + Math.min(this.largestPage, Number(given.limit ?? 100));
    return {
      page: all.slice(start, end),
      next: end < all.length ? Buffer.from(String(end)).toString('base64') : '',
    };
  }

  /** For a private channel without the bot, the error is the same as for a channel that does not exist. */
  private channel(name: string | undefined): Channel | string {
    const channel = this.channels.find((one) => one.id === name);
    if (!channel || (channel.private && !channel.member)) return 'channel_not_found';
    return channel.member ? channel : 'not_in_channel';
  }

  private content(
    given: Record<string, string>,
  ):
    | Pick<StoredMessage, 'text' | 'blocks' | 'metadata'>
    | { ok: false; error: string; [key: string]: unknown } {
    const blocks = JSON.parse(given.blocks ?? '[]') as StoredMessage['blocks'];
    const complaints = blockComplaints(blocks, this.uploads);
    if (complaints.length > 0) {
      const messages = complaints.map((one) => `[ERROR] ${one}`);
      return { ok: false, error: 'invalid_blocks', errors: complaints, response_metadata: { messages } };
    }
    const text = given.text ?? '';
    if (text === '' && blocks.length === 0) return { ok: false, error: 'no_text' };
    if (text.length > 40_000) return { ok: false, error: 'msg_too_long' };
    const metadata =
      given.metadata === undefined ? null : (JSON.parse(given.metadata) as StoredMessage['metadata']);
    if (metadata !== null && !(metadata.event_type && metadata.event_payload))
      return { ok: false, error: 'invalid_metadata_format' };
    return { text, blocks, metadata };
  }

  private store(channel: Channel, message: Partial<StoredMessage>): StoredMessage {
    // In microseconds. Each time stamp is later than all earlier ones.
    this.lastTs = Math.max(this.lastTs + 1, Date.now() * 1000);
    const stored: StoredMessage = {
      ts: (this.lastTs / 1_000_000).toFixed(6),
      thread: null,
      broadcast: false,
      text: '',
      blocks: [],
      metadata: null,
      bot: this.bot,
      edits: 0,
      ...message,
    };
    channel.messages.push(stored);
    return stored;
  }
}

function tooMany(seconds: number): { status: number; answer: Answer; headers: Record<string, string> } {
  return {
    status: 429,
    answer: { ok: false, error: 'ratelimited' },
    headers: { 'retry-after': String(seconds) },
  };
}

function send(
  response: ServerResponse,
  {
    status,
    answer,
    headers = {},
  }: { status: number; answer: Answer | string; headers?: Record<string, string> },
): void {
  const type = typeof answer === 'string' ? 'text/html' : 'application/json; charset=utf-8';
  response.writeHead(status, { 'content-type': type, ...headers });
  response.end(typeof answer === 'string' ? answer : JSON.stringify(answer));
}
