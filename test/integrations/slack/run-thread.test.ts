import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SlackServer } from './slack-server.js';
import {
  checkpoint,
  completed,
  evaluation,
  fast,
  history,
  idOf,
  KeptState,
  openThread,
  paused,
  started,
  status,
  toldIn,
  toolErrors,
} from './threads.js';

const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

let server: SlackServer;

beforeEach(async () => {
  server = await SlackServer.start();
});

afterEach(() => server.stop());

describe('a run has one thread', () => {
  test('that begins with what the run is, and has each event as a reply, in order', async () => {
    const { thread, told } = openThread(server, new KeptState());
    const events = [started, checkpoint(10), evaluation(10), toolErrors(11), paused, completed];
    for (const event of events) expect((await thread.deliver(event)).outcome).toBe('delivered');

    const [root, ...replies] = server.training.messages;
    expect(root).toMatchObject({ thread: null, text: 'nightly: starting' });
    expect(JSON.stringify(root?.blocks)).toContain('small-0.9m');
    expect(JSON.stringify(root?.blocks)).toContain('https://temporal.example/');
    expect(replies.map(idOf)).toEqual(events.slice(1).map(({ id }) => id));
    for (const reply of replies) expect(reply.thread).toBe(root?.ts);
    expect(replies.filter(({ broadcast }) => broadcast).map(idOf)).toEqual(['ended']);
    expect(told).toEqual([]);
  });

  test('whichever event comes first, and whoever hands it over again', async () => {
    const state = new KeptState();
    const { thread } = openThread(server, state);
    await thread.deliver(checkpoint(10));
    await thread.deliver(started);
    await thread.deliver(checkpoint(10));
    const { thread: next } = openThread(server, state);
    await next.deliver(checkpoint(10));
    await next.deliver(checkpoint(20));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'checkpoint.20']);
  });

  test('beside those of other runs of that name in other stores', async () => {
    const { thread: theirs } = openThread(server, new KeptState(), { key: 's3://elsewhere nightly' });
    await theirs.deliver(checkpoint(10));
    const { thread: mine } = openThread(server, new KeptState());
    await mine.deliver(checkpoint(10));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'started', 'checkpoint.10']);
  });

  test('that is begun anew in another channel, without what was told in the first', async () => {
    const other = server.addChannel('other');
    const state = new KeptState();
    const { thread } = openThread(server, state);
    await thread.deliver(checkpoint(10));
    const { thread: moved } = openThread(server, state, { channel: '#other' });
    await moved.deliver(checkpoint(10));
    await moved.deliver(checkpoint(20));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10']);
    expect(toldIn(other)).toEqual(['started', 'checkpoint.20']);
  });

  test('in the channel that is named, be it the last of many that the bot is in', async () => {
    for (let n = 0; n < 25; n++) server.addChannel(`team-${n}`);
    const secret = server.addChannel('secret', { private: true });
    server.largestPage = 10;
    const { thread } = openThread(server, new KeptState(), { channel: '#secret' });
    await thread.deliver(started);
    expect(toldIn(secret)).toEqual(['started']);
  });

  test('that gets a new first message where somebody deleted the old one', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(checkpoint(10));
    server.training.messages.splice(0);
    await thread.showStatus(status(11));
    await thread.deliver(checkpoint(20));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.20']);
    expect(server.training.messages[1]?.thread).toBe(server.training.messages[0]?.ts);
  });
});

describe('nothing is told twice', () => {
  test.each([
    ['lost', () => null],
    ['damaged', () => '{"schema":"longhaul.slack-thread/1"}'],
    ['of yesterday', (yesterday: string | null) => yesterday],
  ])('when the record of the thread is %s: Slack has it too', async (_, damage) => {
    const state = new KeptState();
    const events = history(30);
    const { thread } = openThread(server, state);
    for (const event of events.slice(0, 10)) await thread.deliver(event);
    const yesterday = state.text;
    for (const event of events.slice(10, 20)) await thread.deliver(event);
    for (let n = 0; n < 30; n++) server.say(server.training, 'somebody chats');
    server.largestPage = 7;
    state.text = damage(yesterday);
    const { thread: next } = openThread(server, state);
    for (const event of events) await next.deliver(event);
    expect(toldIn(server.training)).toEqual(events.map(({ id }) => id));
  });

  test('when an answer is lost, and the message arrives after that', async () => {
    const { thread } = openThread(server, new KeptState(), { timing: { settleMs: 150 } });
    await thread.deliver(started);
    let posts = 0;
    server.fault = ({ method }) =>
      method === 'chat.postMessage' && ++posts === 1 ? { kind: 'reset', stored: true, lateMs: 60 } : null;
    await thread.deliver(checkpoint(10));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10']);
    expect(server.callsOf('chat.postMessage')).toHaveLength(2);
  });

  test('when it cannot be told what others have posted from what is ours', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(started);
    const spoof = (mark: Record<string, unknown>, type = 'longhaul_run_event') =>
      server.say(server.training, 'not of this run', { event_type: type, event_payload: mark });
    spoof({ run: 'nightly', key: 'another', id: 'checkpoint.10' });
    spoof({ run: 'nightly', key: 'dir:/store nightly', id: 'checkpoint.10' }, 'deployment');
    spoof({ id: 7 });
    const { thread: next } = openThread(server, new KeptState());
    await next.deliver(checkpoint(10));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10']);
  });

  test('and an id that not every system would keep is known again', async () => {
    const odd = { ...checkpoint(10), id: 'alert.tool_error_rate.<crm & "co">\u{1F600}.10' };
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(odd);
    const { thread: next } = openThread(server, new KeptState());
    await next.deliver(odd);
    expect(server.training.messages).toHaveLength(2);
  });
});

describe('the first message', () => {
  test('shows how the run stands, and is edited no more often than it may', async () => {
    const { thread } = openThread(server, new KeptState(), { timing: { editEveryMs: 120 } });
    await thread.deliver(started);
    for (let step = 1; step <= 20; step++) await thread.showStatus(status(step));
    expect(server.callsOf('chat.update')).toHaveLength(0);
    await new Promise((resolve) => setTimeout(resolve, 130));
    for (let step = 21; step <= 40; step++) await thread.showStatus(status(step));
    expect(server.callsOf('chat.update')).toHaveLength(1);
    const [root] = server.training.messages;
    expect(root?.text).toBe('nightly: collect, step 21 of 500');
    expect(idOf(root!)).toBe('started');

    await thread.showStatus({ ...status(500), phase: 'completed', mood: 'completed' }, 'now');
    expect(root?.text).toBe('nightly: completed, step 500 of 500');
  });

  test('is not edited where nothing has changed', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.showStatus(status(1));
    for (let n = 0; n < 5; n++) await thread.showStatus(status(1));
    expect(server.callsOf('chat.update')).toHaveLength(0);
    await thread.showStatus(status(2));
    await thread.showStatus(status(2));
    expect(server.callsOf('chat.update')).toHaveLength(1);
  });

  test('that another app wrote stays as it is: that is told once, and events go on', async () => {
    const state = new KeptState();
    const { thread, told } = openThread(server, state);
    await thread.deliver(started);
    server.training.messages[0]!.bot = 'the app before';
    for (let step = 1; step < 4; step++) await thread.showStatus(status(step));
    await thread.deliver(checkpoint(10));
    expect(told).toEqual(['The status message in Slack stays as it is: Slack answered cant_update_message']);
    expect(server.training.messages).toHaveLength(2);
  });
});

describe('the chart of an evaluation', () => {
  test('is uploaded once and shown in the message', async () => {
    server.fileReadyAfterMs = 60;
    const { thread } = openThread(server, new KeptState());
    let posts = 0;
    server.fault = ({ method }) =>
      method === 'chat.postMessage' && ++posts === 3 ? { kind: 'status', status: 502, stored: false } : null;
    await thread.deliver(evaluation(10, png));
    expect(server.training.messages).toHaveLength(2);
    const image = server.training.messages[1]?.blocks.find(({ type }) => type === 'image');
    const file = server.files.get((image?.slack_file as { id: string }).id);
    expect(file?.bytes?.equals(png)).toBe(true);
    expect(server.files.size).toBe(1);
    expect(server.callsOf('files.completeUploadExternal')[0]?.arguments).not.toHaveProperty('channel_id');
  });

  test('is left out where the app may not upload: said below the messages, and told once', async () => {
    server.scopes = server.scopes.filter((scope) => scope !== 'files:write');
    const { thread, told } = openThread(server, new KeptState());
    await thread.deliver(evaluation(10, png));
    await thread.deliver(evaluation(20, png));
    expect(toldIn(server.training)).toEqual(['started', 'evaluation.10.final', 'evaluation.20.final']);
    for (const message of server.training.messages.slice(1))
      expect(JSON.stringify(message.blocks)).toContain('lacks the scope files:write');
    expect(told).toHaveLength(1);
    expect(told[0]).toContain('add files:write under OAuth & Permissions');
    expect(server.callsOf('files.getUploadURLExternal')).toHaveLength(1);
  });

  test.each([
    ['uploads fail', () => (server.fault = ({ method }) => (method === 'upload' ? { kind: 'status', status: 503, stored: false } : null))],
    ['Slack never takes the picture', () => (server.fileReadyAfterMs = 600_000)],
  ])('is left out where %s: the message is worth more', async (_, breakIt) => {
    breakIt();
    const { thread } = openThread(server, new KeptState(), { timing: { pictureWaitMs: 60 } });
    await thread.deliver(evaluation(10, png));
    expect(toldIn(server.training)).toEqual(['started', 'evaluation.10.final']);
    expect(JSON.stringify(server.training.messages[1]?.blocks)).toContain('Chart left out');
  });
});

describe('Slack limits the rate', () => {
  test('and is given the time it asks for, once for each message', async () => {
    server.postEveryMs = 700;
    const { thread, told } = openThread(server, new KeptState());
    for (const event of [started, checkpoint(10), checkpoint(20)]) await thread.deliver(event);
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'checkpoint.20']);
    expect(server.callsOf('chat.postMessage')).toHaveLength(5);
    expect(told).toEqual([]);
  }, 20_000);

  test('and is never asked more often than once a second in a channel', async () => {
    server.postEveryMs = 990;
    const { thread } = openThread(server, new KeptState(), { timing: { postEveryMs: 1_000 } });
    for (const event of [checkpoint(10), checkpoint(20), checkpoint(30)]) await thread.deliver(event);
    expect(server.callsOf('chat.postMessage').length).toBeLessThanOrEqual(5);
    expect(toldIn(server.training)).toHaveLength(4);
  }, 20_000);

  test('for longer than is waited for: the event is dropped, with the reason', async () => {
    const { thread } = openThread(server, new KeptState());
    server.fault = ({ method }) => (method === 'chat.postMessage' ? { kind: 'limited', seconds: 3_600 } : null);
    const delivery = await thread.deliver(checkpoint(10));
    expect(delivery).toMatchObject({ outcome: 'dropped', reason: expect.stringContaining('for 3600 s') });
  });

  test('while pages are read: it goes on with the page it was at', async () => {
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
  }, 20_000);
});

describe('Slack is out of reach', () => {
  test('for a while: everything is told later, in order', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(started);
    const back = Date.now() + 400;
    server.fault = () => (Date.now() < back ? { kind: 'reset', stored: false } : null);
    for (const event of history(6)) await thread.deliver(event);
    expect(toldIn(server.training)).toEqual(history(6).map(({ id }) => id));
    expect(thread.trouble).toBeNull();
  });

  test('for longer than the bound: events are dropped, one line tells it, and the status shows how many', async () => {
    const timing = { giveUpAfterMs: 200 };
    const { thread, told } = openThread(server, new KeptState(), { timing });
    await thread.deliver(started);
    server.fault = () => ({ kind: 'proxy page' });
    const begun = Date.now();
    for (let step = 10; step <= 80; step += 10)
      expect((await thread.deliver(checkpoint(step))).outcome).toBe('dropped');
    expect(Date.now() - begun).toBeLessThan(1_500);
    expect(told).toHaveLength(1);
    expect(told[0]).toContain('is there a proxy between?');
    expect(thread.dropped.map(({ id }) => id)).toHaveLength(8);
    expect(thread.trouble).toContain('proxy');

    server.fault = () => null;
    await thread.deliver(checkpoint(90));
    await thread.showStatus(status(91), 'now');
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.90']);
    expect(JSON.stringify(server.training.messages[0]?.blocks)).toContain('8 messages could not be delivered');
    expect(told[1]).toBe('Slack takes messages again');
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
    expect(Date.now() - begun).toBeLessThan(200);
  });

  test('and the process is told to stop: the wait ends at once, and nothing is dropped', async () => {
    const state = new KeptState();
    const { thread, stop } = openThread(server, state, { callTimeoutMs: 30_000 });
    server.fault = () => ({ kind: 'hang', stored: false });
    const delivery = thread.deliver(started);
    setTimeout(() => stop.abort(new Error('shut down')), 50);
    await expect(delivery).rejects.toThrow('shut down');
    expect(thread.dropped).toEqual([]);
  });
});

describe('only a person can mend it', () => {
  const cases: [string, string, () => void, () => void][] = [
    ['not_in_channel', 'invite the bot: /invite @longhaul in ', () => (server.training.member = false), () => (server.training.member = true)],
    ['channel_not_found', 'correct its name or id', () => (server.training.id = 'C999999999'), () => (server.training.id = 'C000000000')],
    ['is_archived', 'unarchive it', () => (server.training.archived = true), () => (server.training.archived = false)],
    ['restricted_action', 'have an admin allow it', () => (server.training.restricted = true), () => (server.training.restricted = false)],
    ['token_revoked', 'put a valid bot token', () => (server.tokenError = 'token_revoked'), () => (server.tokenError = null)],
    ['account_inactive', 'put a valid bot token', () => (server.tokenError = 'account_inactive'), () => (server.tokenError = null)],
    ['missing_scope', 'add chat:write', () => (server.scopes = ['channels:history']), () => (server.scopes = ['channels:history', 'chat:write'])],
    ['missing_scope', 'add channels:history', () => (server.scopes = ['chat:write']), () => (server.scopes = ['channels:history', 'chat:write'])],
  ];

  test.each(cases)('%s: told once with the mend (%s), and all is told once it is mended', async (error, mend, breakIt, mendIt) => {
    breakIt();
    const { thread, told } = openThread(server, new KeptState(), { channel: 'C000000000' });
    setTimeout(mendIt, 200);
    for (const event of [started, checkpoint(10), completed]) await thread.deliver(event);
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'ended']);
    expect(told).toHaveLength(2);
    expect(told[0]).toContain(error);
    expect(told[0]).toContain(mend);
    expect(told[1]).toBe('Slack takes messages again');
  });

  test('and nobody does: events are dropped with the reason, and Slack is asked seldom', async () => {
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

  test('a name that the bot is in no channel of', async () => {
    server.addChannel('elsewhere', { member: false });
    const { thread, told } = openThread(server, new KeptState(), {
      channel: '#elsewhere',
      timing: { giveUpAfterMs: 50 },
    });
    await thread.deliver(started);
    expect(told[0]).toContain('the bot is in no channel #elsewhere');
    expect(told[0]).toContain('/invite @longhaul in #elsewhere');
  });

  test('a token that was rotated is asked for again', async () => {
    let token = 'xoxb-of-last-month';
    const { thread, told } = openThread(server, new KeptState(), { token: () => token });
    setTimeout(() => (token = server.token), 150);
    await thread.deliver(checkpoint(10));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10']);
    expect(told[0]).toContain('invalid_auth');
    expect(told[0]).toContain('into SLACK_BOT_TOKEN');
  });

  test.each(['', '  ', 'xoxb-with\nline'])('"%s" is no token', async (token) => {
    const { thread, told } = openThread(server, new KeptState(), {
      token: () => token,
      timing: { giveUpAfterMs: 20 },
    });
    await thread.deliver(started);
    expect(told[0]).toContain('SLACK_BOT_TOKEN holds');
    expect(server.calls).toHaveLength(0);
  });
});

test('one message that Slack refuses for good is dropped at once, and the others are told', async () => {
  const { thread, told } = openThread(server, new KeptState());
  server.fault = ({ method, arguments: given }) =>
    method === 'chat.postMessage' && given.metadata?.includes('checkpoint.20')
      ? { kind: 'error', error: 'msg_blocks_too_long', stored: false }
      : null;
  for (const step of [10, 20, 30]) await thread.deliver(checkpoint(step));
  expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'checkpoint.30']);
  expect(told).toEqual([
    'The event checkpoint.20 is not told in Slack: chat.postMessage: Slack answered msg_blocks_too_long',
  ]);
});

test('a save that fails is told to the caller, and the event is not told twice', async () => {
  const state = new KeptState();
  const save = state.save;
  const { thread } = openThread(server, state);
  await thread.deliver(started);
  state.save = () => Promise.reject(new Error('ENOSPC'));
  await expect(thread.deliver(checkpoint(10))).rejects.toThrow('ENOSPC');
  state.save = save;
  expect((await thread.deliver(checkpoint(10))).outcome).toBe('delivered');
  expect(state.text).toContain('checkpoint.10');
  expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10']);
});

test('the token is in nothing that is told, recorded or shown', async () => {
  const state = new KeptState();
  const secrets = [server.token, encodeURIComponent(server.token), Buffer.from(server.token).toString('base64')];
  const faults = [
    { kind: 'error' as const, error: `invalid ${server.token}`, stored: false },
    { kind: 'error' as const, error: 'invalid_arguments', stored: false },
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

test('a hanging Slack costs next to no CPU', async () => {
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
  // By default it is tried once in a minute; the rest of this process is the tests' own.
  expect(share).toBeLessThan(0.05);
}, 30_000);
