import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SlackServer } from '../../support/servers/slack-server.js';
import { until } from '../../support/until.js';
import {
  checkpoint,
  completed,
  evaluation,
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

  test('whichever event comes first, and even if an event is delivered again', async () => {
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

  test('separate from those of other runs with that name in other stores', async () => {
    const { thread: theirs } = openThread(server, new KeptState(), { key: 's3://elsewhere nightly' });
    await theirs.deliver(checkpoint(10));
    const { thread: mine } = openThread(server, new KeptState());
    await mine.deliver(checkpoint(10));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'started', 'checkpoint.10']);
  });

  test('that starts again in another channel, without the earlier events', async () => {
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

  test('in the channel that is named, even if it is the last of many that the bot is in', async () => {
    for (let n = 0; n < 25; n++) server.addChannel(`team-${n}`);
    const secret = server.addChannel('secret', { private: true });
    server.largestPage = 10;
    const { thread } = openThread(server, new KeptState(), { channel: '#secret' });
    await thread.deliver(started);
    expect(toldIn(secret)).toEqual(['started']);
  });

  test('that gets a new first message if somebody deleted the old one', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(checkpoint(10));
    server.training.messages.splice(0);
    await thread.showStatus(status(11));
    await thread.deliver(checkpoint(20));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.20']);
    expect(server.training.messages[1]?.thread).toBe(server.training.messages[0]?.ts);
  });

  test('that is given up if somebody deletes its first message again and again', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(started);
    const outcomes: string[] = [];
    for (let step = 10; step <= 50; step += 10) {
      server.training.messages.splice(0);
      outcomes.push((await thread.deliver(checkpoint(step))).outcome);
    }
    expect(outcomes).toEqual(['delivered', 'delivered', 'delivered', 'dropped', 'dropped']);
    expect(thread.dropped[0]?.reason).toContain('thread_not_found');
  });

  test('whose place is saved as soon as it exists', async () => {
    const state = new KeptState();
    const { thread, stop } = openThread(server, state, { callTimeoutMs: 30_000 });
    server.fault = ({ method, arguments: given }) =>
      method === 'chat.postMessage' && given.thread_ts !== undefined ? { kind: 'hang', stored: false } : null;
    const delivery = thread.deliver(checkpoint(10));
    await until(() => server.callsOf('chat.postMessage').length === 2, 'the reply to be sent');
    expect(JSON.parse(state.text ?? '{}')).toMatchObject({ root: server.training.messages[0]?.ts });
    stop.abort(new Error('shut down'));
    await expect(delivery).rejects.toThrow('shut down');
  });
});

describe('nothing is posted twice', () => {
  test.each([
    ['lost', () => null],
    ['damaged', () => '{"schema":"longhaul.slack-thread/1"}'],
    ['old', (yesterday: string | null) => yesterday],
  ])('if the record of the thread is %s, because Slack has it too', async (_, damage) => {
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

  test('if an answer is lost and the message arrives later', async () => {
    const { thread } = openThread(server, new KeptState(), { timing: { settleMs: 150 } });
    await thread.deliver(started);
    let posts = 0;
    server.fault = ({ method }) =>
      method === 'chat.postMessage' && ++posts === 1 ? { kind: 'reset', stored: true, lateMs: 60 } : null;
    await thread.deliver(checkpoint(10));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10']);
    expect(server.callsOf('chat.postMessage')).toHaveLength(2);
  });

  test('if Slack’s clock is behind the run’s; messages from before the run are not read', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(checkpoint(10));
    const at = Date.now() + 50 * 60_000;
    const later = { ...started, at: new Date(at).toISOString() };
    const { thread: next } = openThread(server, new KeptState(), { started: later });
    await next.deliver(checkpoint(10));
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10']);
    const oldest = server.callsOf('conversations.history').at(-1)?.arguments.oldest;
    expect(Number(oldest)).toBeCloseTo(at / 1000 - 3_600, 2);
  });

  test('if an event was given up but its message had arrived: the message is found, and the event no longer counts as dropped', async () => {
    const { thread } = openThread(server, new KeptState(), { timing: { giveUpAfterMs: 150 } });
    await thread.deliver(started);
    server.fault = ({ method }) =>
      method === 'chat.postMessage'
        ? { kind: 'reset', stored: true }
        : method === 'conversations.replies'
          ? { kind: 'status', status: 503, stored: false }
          : null;
    expect((await thread.deliver(checkpoint(10))).outcome).toBe('dropped');
    server.fault = () => null;
    await thread.deliver(checkpoint(20));
    expect(thread.dropped).toEqual([]);
    expect(toldIn(server.training)).toEqual(['started', 'checkpoint.10', 'checkpoint.20']);
  });

  test('if other messages carry marks like ours', async () => {
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

  test('if an event’s id has characters that some system may change', async () => {
    const odd = { ...checkpoint(10), id: 'alert.tool_error_rate.<crm & "co">\u{1F600}.10' };
    const { thread } = openThread(server, new KeptState());
    await thread.deliver(odd);
    const { thread: next } = openThread(server, new KeptState());
    await next.deliver(odd);
    expect(server.training.messages).toHaveLength(2);
  });
});

describe('the first message', () => {
  test('shows the run’s state, and is edited no more often than allowed', async () => {
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

  test('is not edited if nothing has changed', async () => {
    const { thread } = openThread(server, new KeptState());
    await thread.showStatus(status(1));
    for (let n = 0; n < 5; n++) await thread.showStatus(status(1));
    expect(server.callsOf('chat.update')).toHaveLength(0);
    await thread.showStatus(status(2));
    await thread.showStatus(status(2));
    expect(server.callsOf('chat.update')).toHaveLength(1);
  });

  test('stays as it is if another app wrote it: this is reported once, and events are still posted', async () => {
    const state = new KeptState();
    const { thread, told } = openThread(server, state);
    await thread.deliver(started);
    server.training.messages[0]!.bot = 'the app before';
    for (let step = 1; step < 4; step++) await thread.showStatus(status(step));
    await thread.deliver(checkpoint(10));
    expect(told).toEqual(['The status message in Slack is not updated: Slack answered cant_update_message']);
    expect(server.training.messages).toHaveLength(2);
  });
});

describe('the chart of an evaluation', () => {
  test('is uploaded once and shown in the message', async () => {
    server.uploads.readyAfterMs = 60;
    const { thread } = openThread(server, new KeptState());
    let posts = 0;
    server.fault = ({ method }) =>
      method === 'chat.postMessage' && ++posts === 3 ? { kind: 'status', status: 502, stored: false } : null;
    await thread.deliver(evaluation(10, png));
    expect(server.training.messages).toHaveLength(2);
    const image = server.training.messages[1]?.blocks.find(({ type }) => type === 'image');
    const file = server.uploads.files.get((image?.slack_file as { id: string }).id);
    expect(file?.bytes?.equals(png)).toBe(true);
    expect(server.uploads.files.size).toBe(1);
    expect(server.callsOf('files.completeUploadExternal')[0]?.arguments).not.toHaveProperty('channel_id');
  });

  test('is left out if the app may not upload: the message says so, and it is reported once', async () => {
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
    [
      'uploads fail',
      () =>
        (server.fault = ({ method }) =>
          method === 'upload' ? { kind: 'status', status: 503, stored: false } : null),
    ],
    [
      'the workspace takes no files',
      () =>
        (server.fault = ({ method }) =>
          method === 'files.getUploadURLExternal'
            ? { kind: 'error', error: 'no_permission', stored: false }
            : null),
    ],
    ['Slack never takes the picture', () => (server.uploads.readyAfterMs = 600_000)],
  ])('is left out if %s, because the message matters more', async (_, breakIt) => {
    breakIt();
    const { thread } = openThread(server, new KeptState(), { timing: { pictureWaitMs: 60 } });
    await thread.deliver(evaluation(10, png));
    expect(toldIn(server.training)).toEqual(['started', 'evaluation.10.final']);
    expect(JSON.stringify(server.training.messages[1]?.blocks)).toContain('Chart left out');
  });
});

test('a failed save is reported to the caller, and the event is not posted twice', async () => {
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
