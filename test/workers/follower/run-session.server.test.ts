// All followers of one run: what is undelivered at the end is reported and may be delivered later, and no message contains a secret.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { followRun, type SessionOptions } from '../../../src/workers/follower/run-session.js';
import type { RunStanding } from '../../../src/workers/follower/run-watch.js';
import type { RecordTypes } from '../../../src/spec/records/record-kinds.js';
import { withoutSecrets } from '../../../src/base/secrets.js';
import { ownersFolder, sequenceKey } from '../../../src/store/record-keys.js';
import { readTroubles } from '../../../src/store/runs/notices.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { SlackServer } from '../../support/servers/slack-server.js';
import { until } from '../../support/until.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { memoryStore } from './memory-store.js';
import { recordsOf, timeOf, writeAll } from './written-run.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const scratch = scratchFolder();
const secret = 'hunter2-and-then-some';
let sessions = 0;
let slack: SlackServer;
beforeEach(async () => {
  slack = await SlackServer.start();
});
afterEach(() => slack.stop());

const failed: RunStanding = {
  over: true,
  ending: {
    ...{ firstRunId: 'r1', runId: 'r1', how: 'failed', at: timeOf(60) },
    reason: `the server answered 401 for Bearer ${secret}`,
  },
  phase: 'failed',
  blocked: { reason: `401 for ${secret}`, remedy: `correct ${secret}` },
};

/** A session of a run that is over; `observed` is added to its owner record. */
async function session(
  observed: Partial<RecordTypes['owner']['observed']>,
  token: () => string | undefined = () => slack.token,
): Promise<SessionOptions> {
  const store = memoryStore();
  const isOwner = ({ key }: { key: string }): boolean => key.startsWith(ownersFolder('tiny'));
  await writeAll(
    store,
    recordsOf({ steps: 3 }).filter((one) => !isOwner(one)),
  );
  const { owner } = recordsOfAllKinds();
  const record = { ...owner, n: 1, observed: { ...owner.observed, at: timeOf(0), ...observed } };
  await store.create(sequenceKey(ownersFolder('tiny'), 1), await encodeRecord('owner', record));
  return {
    ...{ store, run: 'tiny', folder: join(scratch, String(++sessions)), figures: null },
    ...{ wandbPython: 'python3', wandbKey: () => undefined, links: [] },
    ...{ slackToken: token, slackTokenName: 'SLACK_BOT_TOKEN', slackUrl: slack.url },
    ...{ trouble: () => ({ sink: 'metrics address', trouble: null }), by: 'a test', log: () => undefined },
    clean: (text) => withoutSecrets(text, [secret]),
    standing: () => failed,
    signal: new AbortController().signal,
    times: { retryMs: [5, 20], pollMs: [5, 20], lastTryMs: 200 },
  };
}

describe('the followers of a run that is over', () => {
  it('report a tracker that was given up, and complete it when they start again', async () => {
    const options = await session({ tracking: { metrics_jsonl: true, tensorboard: false } });
    const file = join(options.folder, 'tracking', 'tiny', 'metrics.jsonl');
    // A file at this place, so that no folder can be made.
    mkdirSync(dirname(dirname(file)), { recursive: true });
    writeFileSync(dirname(file), '');
    expect(await followRun(options)).toBe('lacking');
    expect((await readTroubles(options.store, 'tiny')).map(({ sink }) => sink)).toEqual(['metrics.jsonl']);
    rmSync(dirname(file));
    expect(await followRun(options)).toBe('delivered');
    expect(readFileSync(file, 'utf8').trim().split('\n')).toHaveLength(3 + 2);
    expect(await readTroubles(options.store, 'tiny')).toEqual([]);
  });

  it('report that Slack was given up without a token, and deliver everything once there is one', async () => {
    const held: { token?: string } = {};
    const only = { tracking: { metrics_jsonl: false, tensorboard: false } };
    const options = await session(
      { ...only, slack: { channel: '#training', events: ['end'] } },
      () => held.token,
    );
    expect(await followRun(options)).toBe('lacking');
    expect(slack.calls).toEqual([]);
    held.token = slack.token;
    expect(await followRun({ ...options, times: {} })).toBe('delivered');
    expect(slack.training.messages.map(({ metadata }) => metadata?.event_payload.id)).toEqual([
      'started',
      expect.stringMatching(/^ended\.1\./),
    ]);
    const shown = JSON.stringify(slack.training.messages);
    expect(shown).not.toContain(secret);
    expect(shown).toContain('the server answered 401 for Bearer [secret removed]');
  });
});

describe('a run without followers', () => {
  it('is waited for until its end, and nothing is logged', async () => {
    const said: string[] = [];
    let standing: RunStanding = { over: false, ending: null, phase: 'training', blocked: null };
    const options = await session({ tracking: { metrics_jsonl: false, tensorboard: false } });
    const following = followRun({ ...options, standing: () => standing, log: (line) => said.push(line) });
    const first = await Promise.race([following, delay(300, 'it goes on')]);
    standing = failed;
    expect(first).toBe('it goes on');
    expect(await following).toBe('delivered');
    expect(said).toEqual([]);
  });

  it('does not delay the end of its session', async () => {
    const standing: RunStanding = { over: false, ending: null, phase: 'training', blocked: null };
    const options = await session({ tracking: { metrics_jsonl: false, tensorboard: false } });
    const stop = new AbortController();
    let looks = 0;
    const look = (): RunStanding => (looks++, standing);
    const times = { pollMs: [60_000, 60_000] as [number, number] };
    const following = followRun({ ...options, standing: look, signal: stop.signal, times });
    await until(() => looks > 0, 'it to wait');
    const begun = performance.now();
    stop.abort();
    expect(await following).toBe('stopped');
    expect(performance.now() - begun).toBeLessThan(5_000);
  });
});
