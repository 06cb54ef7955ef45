import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { probeSlack } from '../../../src/integrations/slack/slack-probe.js';
import { SlackServer } from '../../support/servers/slack-server.js';

let server: SlackServer;

beforeEach(async () => {
  server = await SlackServer.start();
});

afterEach(() => server.stop());

const probe = (channel = '#training') =>
  probeSlack({
    token: () => server.token,
    tokenName: 'SLACK_BOT_TOKEN',
    channel,
    apiUrl: server.url,
    callTimeoutMs: 300,
  });

describe('doctor', () => {
  test('names the bot, checks that it can read the channel, and posts nothing', async () => {
    expect(await probe()).toEqual([
      { check: 'slack token', ok: true, detail: '@longhaul in Test Team' },
      { check: 'slack scopes', ok: true, detail: server.scopes.join(', ') },
      { check: 'slack channel', ok: true, detail: 'the bot is in #training (C000000000) and can read it' },
    ]);
    expect((await probe(server.training.id)).at(-1)?.ok).toBe(true);
    expect(server.training.messages).toEqual([]);
  });

  test.each([
    ['token_revoked', () => (server.tokenError = 'token_revoked'), 'slack token', 'put a valid bot token'],
    [
      'a bot that was not invited',
      () => (server.training.member = false),
      'slack channel',
      '/invite @longhaul in #training',
    ],
    [
      'no scope to post',
      () => (server.scopes = ['channels:history', 'channels:read', 'groups:read']),
      'slack scopes',
      'add chat:write',
    ],
    [
      'no scope to read',
      () => (server.scopes = ['chat:write', 'channels:read', 'groups:read']),
      'slack channel',
      'add channels:history',
    ],
    [
      'no scope for names',
      () => (server.scopes = ['chat:write', 'channels:history']),
      'slack channel',
      'add channels:read',
    ],
    [
      'a server that hangs',
      () => (server.fault = () => ({ kind: 'hang', stored: false })),
      'slack token',
      'is slack.com reachable from here?',
    ],
    [
      'a rate limit',
      () => (server.fault = () => ({ kind: 'limited', seconds: 30 })),
      'slack token',
      'run the check again after that',
    ],
    [
      'a rate limit while it searches the channels',
      () =>
        (server.fault = ({ method }) =>
          method === 'users.conversations' ? { kind: 'limited', seconds: 30 } : null),
      'slack channel',
      'run the check again after that',
    ],
  ])('reports %s, with the fix in one line', async (_, breakIt, check, fix) => {
    breakIt();
    const failed = (await probe()).filter(({ ok }) => !ok);
    expect(failed.map((one) => one.check)).toContain(check);
    expect(failed.find((one) => one.check === check)?.detail).toContain(fix);
    for (const { detail } of failed) expect(detail).not.toContain('\n');
  });

  test('accepts an app that sees only public channels', async () => {
    server.scopes = ['chat:write', 'channels:history', 'channels:read'];
    const checks = await probe();
    expect(checks.map(({ ok }) => ok)).toEqual([true, true, true]);
    expect(checks[1]?.detail).toContain('files:write');
  });

  test('does not blame the network if Slack answers and refuses', async () => {
    server.fault = ({ method }) =>
      method === 'conversations.history'
        ? { kind: 'error', error: 'invalid_limit', stored: false, messages: ['[ERROR] limit is too high'] }
        : null;
    expect((await probe()).at(-1)).toEqual({
      check: 'slack channel',
      ok: false,
      detail: 'Slack answered invalid_limit ([ERROR] limit is too high)',
    });
  });

  test('refuses an id that is not a channel’s', async () => {
    const last = (await probe('C999999999')).at(-1);
    expect(last).toMatchObject({ ok: false, detail: expect.stringContaining('correct its name or id') });
  });
});
