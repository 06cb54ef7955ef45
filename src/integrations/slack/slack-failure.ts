// What an answer from Slack, or a missing answer, means for a message, and what a person can do about it. Texts contain only the error
// codes of Slack and Node, because an error's message may quote what was sent.
import {
  WebAPIHTTPError,
  WebAPIPlatformError,
  WebAPIRateLimitedError,
  WebAPIRequestError,
} from '@slack/web-api';

export type SlackFailure =
  /** Nothing was done; the call will be accepted after the pause. */
  | { kind: 'limited'; pauseMs: number; reason: string }
  /** Nothing was done, and no call will be accepted until a person follows `fix`. */
  | { kind: 'lasting'; code: string; reason: string; fix: string }
  /** Nothing was done: the message does not exist, or was deleted. */
  | { kind: 'gone'; reason: string }
  /** This call will never be accepted; other calls may be. */
  | { kind: 'refused'; code: string; reason: string }
  /** It is unknown whether the call was done; a later attempt may succeed. */
  | { kind: 'passing'; reason: string };

export class SlackCallFailed extends Error {
  override readonly name = 'SlackCallFailed';
  constructor(
    readonly method: string,
    readonly failure: SlackFailure,
  ) {
    super(`${method}: ${failure.reason}${failure.kind === 'lasting' ? `: ${failure.fix}` : ''}`);
  }
}

/** Names of the channel, the token and the bot, for messages about them. */
export interface Names {
  /** The name that a person configured. */
  channel: string;
  /** Where the token comes from, such as `SLACK_BOT_TOKEN`; never the token itself. */
  token: string;
  /** Null if Slack was never asked for it. */
  bot: string | null;
}

const shortestPauseMs = 1_000;
/** Used if Slack reports a rate limit by an error code: unlike status 429, such an answer gives no pause. */
const unnamedPauseMs = 30_000;

const tokenErrors = new Set([
  'invalid_auth',
  'not_authed',
  'token_revoked',
  'token_expired',
  'account_inactive',
  'user_removed_from_team',
  'not_allowed_token_type',
  'team_access_not_granted',
]);
const refusedPlace = new Set([
  'restricted_action',
  'restricted_action_read_only_channel',
  'restricted_action_thread_only_channel',
  'restricted_action_non_threadable_channel',
  'restricted_action_thread_locked',
  'ekm_access_denied',
  'no_permission',
  'access_denied',
  'channel_type_not_supported',
  'method_not_supported_for_channel_type',
]);
const goneMessages = new Set(['message_not_found', 'thread_not_found']);
/** Slack's documentation says that after the first two of these errors, a part of the call may have been done. */
const passingErrors = new Set([
  'internal_error',
  'fatal_error',
  'service_unavailable',
  'request_timeout',
  'team_added_to_org',
  'org_login_required',
]);

export function failureOf(error: unknown, names: Names): SlackFailure {
  if (error instanceof WebAPIRateLimitedError) return limited(error.retryAfter * 1000);
  if (error instanceof WebAPIPlatformError) return platformFailure(error, names);
  if (error instanceof WebAPIHTTPError)
    return { kind: 'passing', reason: `Slack answered with status ${error.statusCode}` };
  return { kind: 'passing', reason: `no answer from Slack (${causeOf(error)})` };
}

function limited(pauseMs: number): SlackFailure {
  const pause = Math.max(shortestPauseMs, pauseMs);
  return { kind: 'limited', pauseMs: pause, reason: `Slack limits the request rate for ${pause / 1000} s` };
}

function platformFailure({ data }: WebAPIPlatformError, names: Names): SlackFailure {
  const code: unknown = data.error;
  // If the body is not JSON, such as a proxy's page, the client puts that body here in place of the code.
  if (typeof code !== 'string' || !/^[a-z0-9_]{1,80}$/.test(code))
    return { kind: 'passing', reason: 'the answer did not come from Slack; is there a proxy in between?' };
  if (code === 'ratelimited' || code === 'rate_limited')
    return limited((data.response_metadata?.retryAfter ?? 0) * 1000 || unnamedPauseMs);
  const answered = `Slack answered ${code}`;
  if (passingErrors.has(code)) return { kind: 'passing', reason: answered };
  if (goneMessages.has(code)) return { kind: 'gone', reason: answered };
  const fix = fixOf(code, data, names);
  if (fix !== null) return { kind: 'lasting', code, reason: answered, fix };
  const details = (data.response_metadata?.messages ?? []).join('; ').slice(0, 300);
  return { kind: 'refused', code, reason: details === '' ? answered : `${answered} (${details})` };
}

function fixOf(code: string, data: WebAPIPlatformError['data'], names: Names): string | null {
  const { channel, token } = names;
  const invite = `/invite @${names.bot ?? 'your-bot'}`;
  if (tokenErrors.has(code))
    return `put a valid bot token (it begins with xoxb-) of an app that is installed in the workspace into ${token}`;
  if (refusedPlace.has(code))
    return `a workspace rule forbids the bot to post in ${channel}: ask an admin to allow it, or name another channel`;
  switch (code) {
    case 'not_in_channel':
      return `invite the bot: ${invite} in ${channel}`;
    case 'channel_not_found':
      return `the bot sees no channel ${channel}: correct its name or id, or, if it is private, invite the bot: ${invite} there`;
    case 'is_archived':
      return `${channel} is archived: unarchive it, or name another channel`;
    case 'missing_scope': {
      const { needed } = data as { needed?: unknown };
      const scopes = typeof needed === 'string' ? needed : 'the scopes that `longhaul doctor` names';
      return `add ${scopes} under OAuth & Permissions of the Slack app, then install it again`;
    }
    default:
      return null;
  }
}

/** A short cause, such as `ECONNREFUSED` or `timed out`. */
function causeOf(error: unknown): string {
  let inner: unknown = error instanceof WebAPIRequestError ? error.original : error;
  for (let depth = 0; depth < 10 && inner instanceof Error; depth++) {
    if (inner.name === 'TimeoutError') return 'timed out';
    const { code } = inner as NodeJS.ErrnoException;
    if (typeof code === 'string' && /^[A-Z][A-Z0-9_]+$/.test(code)) return code;
    if (inner.cause === undefined) break;
    inner = inner.cause;
  }
  return 'the connection broke';
}
