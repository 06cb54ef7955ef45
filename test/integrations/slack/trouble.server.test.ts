import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SlackServer } from '../../support/servers/slack-server.js';
import { until } from '../../support/until.js';
import {
  checkpoint,
  completed,
  fast,
  history,
  KeptState,
  openThread,
  started,
  status,
  toldIn,
} from './threads.js';

let server: SlackServer;

beforeEach(async () => {
  server = await SlackServer.start();
});

afterEach(() => server.stop());

describe('Slack limits the rate', () => {
  test('and gets the time it asks for, once for each message', async () => {
    server.postEveryMs = 700;
    const { thread, told } = openThread(server, new KeptState());
    for (const event of [started, checkpoint(10), checkpoint(20)]) await thread.deliver(event);
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'checkpoint.20']);
    expect(server.callsOf('chat.postMessage')).toHaveLength(5);
    expect(told).toEqual([]);
  });

  test('and is never called more than once a second in a channel', async () => {
    // On a busy machine one request takes longer than the next one, so two can arrive within less than a second.
    server.postEveryMs = 500;
    const { thread } = openThread(server, new KeptState(), { timing: { postEveryMs: 1_000 } });
    for (const event of [checkpoint(10), checkpoint(20), checkpoint(30)]) await thread.deliver(event);
    expect(server.callsOf('chat.postMessage').length).toBeLessThanOrEqual(5);
    expect(toldIn(server.training)).toHaveLength(4);
  });

  test('for longer than the time limit: the event is dropped, with the reason', async () => {
    const { thread } = openThread(server, new KeptState());
    server.fault = ({ method }) =>
      method === 'chat.postMessage' ? { kind: 'limited', seconds: 3_600 } : null;
    const delivery = await thread.deliver(checkpoint(10));
    expect(delivery).toMatchObject({ outcome: 'dropped', reason: expect.stringContaining('for 3600 s') });
  });

  test('while pages are read: reading continues at the same page', async () => {
    const { thread } = openThread(server, new KeptState());
    for (const event of history(12)) await thread.deliver(event);
    server.largestPage = 5;
    let pages = 0;
    server.fault = ({ method }) =>
      method === 'conversations.replies' && ++pages === 2 ? { kind: 'limited', seconds: 1 } : null;
    const { thread: next } = openThread(server, new KeptState());
    await next.deliver(completed);
    expect(server.training.messages).toHaveLength(14);
    expect(pages).toBe(4);
  });
});

describe('Slack limits the rate while channels are searched', () => {
  beforeEach(() => {
    for (let n = 0; n < 25; n++) server.addChannel(`team-${n}`);
    server.addChannel('last');
    server.largestPage = 10;
  });

  test('and the search continues at the same page', async () => {
    let pages = 0;
    server.fault = ({ method }) =>
      method === 'users.conversations' && ++pages === 2 ? { kind: 'limited', seconds: 1 } : null;
    const { thread, told } = openThread(server, new KeptState(), { channel: '#last' });
    await thread.deliver(started);
    expect(toldIn(server.channels.at(-1)!)).toEqual(['started']);
    // Three pages, one of them twice.
    expect(pages).toBe(4);
    expect(told).toEqual([]);
  });

  test('again and again: all pages share one waiting time, and after that the thread’s limit applies', async () => {
    let pages = 0;
    server.fault = ({ method }) =>
      method === 'users.conversations' && ++pages % 2 === 1 ? { kind: 'limited', seconds: 1 } : null;
    const { thread } = openThread(server, new KeptState(), {
      channel: '#last',
      pagingPatienceMs: 1_500,
      timing: { giveUpAfterMs: 0, longestPauseMs: 5, restMs: 5 },
    });
    const delivery = await thread.deliver(started);
    expect(delivery).toMatchObject({
      outcome: 'dropped',
      reason: expect.stringContaining('limits the request rate'),
    });
    // The first limit was waited out, the second was not.
    expect(pages).toBe(3);
  });
});

describe('Slack is out of reach', () => {
  test('for a while: everything is delivered later, in order', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(started);
    const back = Date.now() + 400;
    server.fault = () => (Date.now() < back ? { kind: 'reset', stored: false } : null);
    for (const event of history(6)) await thread.deliver(event);
    expect(toldIn(server.training)).toEqual(history(6).map(({ id }) => id));
    expect(thread.trouble).toBeNull();
  });

  test('for longer than the limit: events are dropped, one line reports it, and the status counts them', async () => {
    const timing = { giveUpAfterMs: 1_000 };
    const { thread, told } = openThread(server, new KeptState(), { timing });
    await thread.deliver(started);
    server.fault = () => ({ kind: 'proxy page' });
    const begun = Date.now();
    for (let step = 10; step <= 80; step += 10)
      expect((await thread.deliver(checkpoint(step))).outcome).toBe('dropped');
    // The limit is for the outage, not for each event in it.
    expect(Date.now() - begun).toBeLessThan(7_500);
    expect(told).toHaveLength(1);
    expect(told[0]).toContain('is there a proxy in between?');
    expect(thread.dropped.map(({ id }) => id)).toHaveLength(8);
    expect(thread.trouble).toContain('proxy');

    server.fault = () => null;
    await thread.deliver(checkpoint(90));
    await thread.showStatus(status(91), 'now');
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.90']);
    expect(JSON.stringify(server.training.messages[0]?.blocks)).toContain(
      '8 messages could not be delivered',
    );
    expect(told[1]).toBe('Slack accepts messages again');
    expect((await thread.deliver(checkpoint(10))).outcome).toBe('dropped');
  });

  test('because it hangs: every wait ends', async () => {
    const { thread } = openThread(server, new KeptState(), {
      callTimeoutMs: 50,
      timing: { giveUpAfterMs: 300 },
    });
    server.fault = () => ({ kind: 'hang', stored: false });
    const delivery = await thread.deliver(started);
    expect(delivery).toMatchObject({ outcome: 'dropped', reason: expect.stringContaining('timed out') });
    const begun = Date.now();
    await thread.showStatus(status(1));
    expect(Date.now() - begun).toBeLessThan(5_000);
  });

  test('and the process must stop: the wait ends at once, and nothing is dropped', async () => {
    const state = new KeptState();
    const { thread, stop } = openThread(server, state, { callTimeoutMs: 30_000 });
    server.fault = () => ({ kind: 'hang', stored: false });
    const delivery = thread.deliver(started);
    setTimeout(() => stop.abort(new Error('shut down')), 50);
    await expect(delivery).rejects.toThrow('shut down');
    expect(thread.dropped).toEqual([]);
  });
});

describe('only a person can fix it', () => {
  const cases: [string, string, () => void, () => void][] = [
    [
      'not_in_channel',
      'invite the bot: /invite @longhaul in ',
      () => (server.training.member = false),
      () => (server.training.member = true),
    ],
    [
      'channel_not_found',
      'correct its name or id',
      () => (server.training.id = 'C999999999'),
      () => (server.training.id = 'C000000000'),
    ],
    [
      'is_archived',
      'unarchive it',
      () => (server.training.archived = true),
      () => (server.training.archived = false),
    ],
    [
      'restricted_action',
      'ask an admin to allow it',
      () => (server.training.restricted = true),
      () => (server.training.restricted = false),
    ],
    [
      'token_revoked',
      'put a valid bot token',
      () => (server.tokenError = 'token_revoked'),
      () => (server.tokenError = null),
    ],
    [
      'account_inactive',
      'put a valid bot token',
      () => (server.tokenError = 'account_inactive'),
      () => (server.tokenError = null),
    ],
    [
      'missing_scope',
      'add chat:write',
      () => (server.scopes = ['channels:history']),
      () => (server.scopes = ['channels:history', 'chat:write']),
    ],
    [
      'missing_scope',
      'add channels:history',
      () => (server.scopes = ['chat:write']),
      () => (server.scopes = ['channels:history', 'chat:write']),
    ],
  ];

  test.each(cases)(
    '%s: reported once with the fix (%s), and everything is delivered once it is fixed',
    async (error, fix, breakIt, mendIt) => {
      breakIt();
      const { thread, told } = openThread(server, new KeptState(), { channel: 'C000000000' });
      const mended = until(() => told.length > 0, 'the thread to report it').then(mendIt);
      for (const event of [started, checkpoint(10), completed]) await thread.deliver(event);
      await mended;
      expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'ended']);
      expect(told).toHaveLength(2);
      expect(told[0]).toContain(error);
      expect(told[0]).toContain(fix);
      expect(told[1]).toBe('Slack accepts messages again');
    },
  );

  test('and nobody does: events are dropped with the reason, and Slack is rarely called', async () => {
    server.training.member = false;
    const timing = { giveUpAfterMs: 100, restMs: 60 };
    const { thread, told } = openThread(server, new KeptState(), { timing });
    const begun = performance.now();
    for (const event of history(8)) expect((await thread.deliver(event)).outcome).toBe('dropped');
    const rests = (performance.now() - begun) / timing.restMs;
    expect(told).toHaveLength(2);
    expect(thread.trouble).toContain('not_in_channel');
    expect(server.callsOf('conversations.history').length).toBeLessThanOrEqual(rests + 1);
  });

  test('a channel name, if the bot is in no channel of that name', async () => {
    server.addChannel('elsewhere', { member: false });
    const { thread, told } = openThread(server, new KeptState(), {
      channel: '#elsewhere',
      timing: { giveUpAfterMs: 50 },
    });
    await thread.deliver(started);
    expect(told[0]).toContain('the bot is in no channel #elsewhere');
    expect(told[0]).toContain('/invite @longhaul in #elsewhere');
  });

  test('a token that was replaced is read again', async () => {
    let token = 'xoxb-of-last-month';
    const { thread, told } = openThread(server, new KeptState(), { token: () => token });
    setTimeout(() => (token = server.token), 150);
    await thread.deliver(checkpoint(10));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10']);
    expect(told[0]).toContain('invalid_auth');
    expect(told[0]).toContain('into SLACK_BOT_TOKEN');
  });

  test.each(['', '  ', 'xoxb-with\nline'])('"%s" is not a token', async (token) => {
    const { thread, told } = openThread(server, new KeptState(), {
      token: () => token,
      timing: { giveUpAfterMs: 20 },
    });
    await thread.deliver(started);
    expect(told[0]).toMatch(/SLACK_BOT_TOKEN (is empty|does not hold a token)/);
    expect(server.calls).toHaveLength(0);
  });
});

test('one message that Slack refuses for good is dropped at once, and the others are delivered', async () => {
  const { thread, told } = openThread(server, new KeptState());
  server.fault = ({ method, arguments: given }) =>
    method === 'chat.postMessage' && given.metadata?.includes('checkpoint.20')
      ? { kind: 'error', error: 'msg_blocks_too_long', stored: false }
      : null;
  for (const step of [10, 20, 30]) await thread.deliver(checkpoint(step));
  expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'checkpoint.30']);
  expect(told).toEqual([
    'The event checkpoint.20 is not posted to Slack: chat.postMessage: Slack answered msg_blocks_too_long',
  ]);
});

test('the token is in no message, log line or record', async () => {
  const state = new KeptState();
  const secrets = [
    server.token,
    encodeURIComponent(server.token),
    Buffer.from(server.token).toString('base64'),
  ];
  const faults = [
    { kind: 'error' as const, error: `invalid ${server.token}`, stored: false },
    { kind: 'error' as const, error: 'invalid_arguments', stored: false },
    {
      kind: 'error' as const,
      error: 'invalid_blocks',
      stored: false,
      messages: [`[ERROR] bad header: Bearer ${server.token}`],
    },
    {
      kind: 'error' as const,
      error: 'invalid_blocks',
      stored: false,
      messages: [`[ERROR] bad form: token=${encodeURIComponent(server.token)}`],
    },
    { kind: 'status' as const, status: 500, stored: false },
    { kind: 'reset' as const, stored: false },
    { kind: 'error' as const, error: 'token_revoked', stored: false },
  ];
  const said: string[] = [];
  for (const fault of faults) {
    server.fault = () => fault;
    const { thread, told } = openThread(server, state, { timing: { ...fast, giveUpAfterMs: 30 } });
    const delivery = await thread.deliver(checkpoint(faults.indexOf(fault)));
    said.push(JSON.stringify([told, delivery, thread.dropped, thread.trouble]));
  }
  said.push(state.text ?? '');
  for (const text of said) for (const secret of secrets) expect(text).not.toContain(secret);
});

test('a hanging Slack costs almost no CPU', async () => {
  const { thread } = openThread(server, new KeptState(), {
    callTimeoutMs: 300,
    timing: { giveUpAfterMs: 3_000, firstPauseMs: 100, longestPauseMs: 400 },
  });
  await thread.deliver(started);
  server.fault = () => ({ kind: 'hang', stored: false });
  const before = process.cpuUsage();
  const begun = performance.now();
  expect((await thread.deliver(checkpoint(10))).outcome).toBe('dropped');
  const { user, system } = process.cpuUsage(before);
  const share = (user + system) / 1000 / (performance.now() - begun);
  console.log(`a hanging Slack takes ${(share * 100).toFixed(2)} % of a core, tried every 0.7 s`);
  // By default, one attempt is made per minute; other work in this process belongs to the tests.
  expect(share).toBeLessThan(0.1);
});
