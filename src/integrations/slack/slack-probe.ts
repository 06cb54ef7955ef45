// The Slack checks of `longhaul doctor`: the token, its rights, and the channel. They post nothing.
import { SlackApi, type SlackAccess } from './slack-api.js';
import { SlackCallFailed } from './slack-failure.js';

interface SlackCheck {
  check: string;
  ok: boolean;
  /** One line: what was found, or what is wrong and how to fix it. */
  detail: string;
}

const probeTimeoutMs = 5_000;

/** Skips checks that must fail because of an earlier one, and the channel's check if `channel` is null. */
export async function probeSlack(
  given: Omit<SlackAccess, 'channel'> & { channel: string | null },
): Promise<SlackCheck[]> {
  const { channel } = given;
  const access = { ...given, channel: channel ?? '' };
  const stop = new AbortController().signal;
  const api = new SlackApi({ callTimeoutMs: probeTimeoutMs, pagingPatienceMs: 0, ...access }, stop);
  const results: SlackCheck[] = [];

  /** The found value; null if the check failed. */
  async function check<T>(
    name: string,
    probe: () => Promise<T>,
    found: (value: T) => string,
  ): Promise<T | null> {
    try {
      const value = await probe();
      results.push({ check: name, ok: true, detail: found(value) });
      return value;
    } catch (error) {
      if (!(error instanceof SlackCallFailed)) throw error;
      results.push({ check: name, ok: false, detail: explained(error) });
      return null;
    }
  }

  const identity = await check(
    'slack token',
    () => api.whoAmI(),
    ({ bot, team }) => `@${bot} in ${team}`,
  );
  if (identity === null) return results;
  results.push(scopesCheck(identity.scopes));
  if (channel === null) return results;
  await check(
    'slack channel',
    async () => {
      const id = await api.channelId();
      await api.readsHistory(id);
      return id;
    },
    (id) => `the bot is in ${access.channel}${access.channel === id ? '' : ` (${id})`} and can read it`,
  );
  return results;
}

function scopesCheck(scopes: string[] | null): SlackCheck {
  const check = 'slack scopes';
  if (scopes === null) return { check, ok: true, detail: 'Slack does not report the scopes of the token' };
  const lacking = [
    scopes.includes('chat:write') ? [] : ['chat:write (to post)'],
    scopes.some((scope) => ['channels:history', 'groups:history'].includes(scope))
      ? []
      : ['channels:history, or groups:history for a private channel (needed to post nothing twice)'],
    scopes.includes('files:write')
      ? []
      : ['files:write (for charts of evaluations; everything else works without it)'],
  ].flat();
  if (lacking.length === 0) return { check, ok: true, detail: scopes.join(', ') };
  return {
    check,
    ok: lacking.every((scope) => scope.startsWith('files:write')),
    detail: `add ${lacking.join('; ')} under OAuth & Permissions of the Slack app, then install it again`,
  };
}

function explained({ failure }: SlackCallFailed): string {
  if (failure.kind === 'lasting') return `${failure.reason}: ${failure.fix}`;
  if (failure.kind === 'limited') return `${failure.reason}: run the check again after that`;
  if (failure.kind === 'passing') return `${failure.reason}: is slack.com reachable from here?`;
  return failure.reason;
}
