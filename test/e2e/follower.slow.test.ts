// A stack whose run has trackers and a Slack thread. Everything is reported once, although the follower is killed again and again.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { MetricPoint } from '../../src/integrations/tracking/metric-point.js';
import { eventIds, expectedPoints } from '../support/stored-points.js';
import { eventFileName } from '../../src/integrations/tracking/tensorboard/tensorboard-sink.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { readTroubles } from '../../src/store/runs/notices.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { freePort } from '../../src/stack/free-port.js';
import { type Stack, startStack } from '../../src/stack/stack.js';
import type { trainingRun } from '../../src/workflows/run/training-run.js';
import { findEngine } from '../support/find-tools.js';
import { SlackServer } from '../support/servers/slack-server.js';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-follower-'));
const told = (name: string): string => join(folder, 'stack', 'follower', 'tracking', name);
const kills = 4;

describe('a stack whose run is reported', () => {
  let slack: SlackServer;
  let stack: Stack;
  let client: Client;
  let store: ObjectStore;
  let named: (name: string) => RunSpec;

  beforeAll(async () => {
    slack = await SlackServer.start();
    vi.stubEnv('SLACK_API_URL', slack.url);
    vi.stubEnv('SLACK_BOT_TOKEN', slack.token);
    ({ named } = await smallRun(join(folder, 'data')));
    const built = (path: string): string => resolve('dist', path);
    stack = await startStack({
      folder: join(folder, 'stack'),
      engine: findEngine(),
      scripts: {
        orchestrator: built('workers/orchestrator-main.js'),
        node: built('workers/node-main.js'),
        environments: [process.execPath, built('examples/apps/server/main.js')],
        follower: fileURLToPath(new URL('hurried-follower.mjs', import.meta.url)),
      },
      log: (message) => console.log(message),
      gaveUp: (error) => console.error(error),
      temporalPort: await freePort(),
      uiPort: await freePort(),
    });
    client = new Client({ connection: await Connection.connect({ address: stack.addresses.temporal }) });
    store = await openStore(stack.addresses.store);
  });
  afterEach(() => {
    slack.fault = () => null;
    slack.tokenError = null;
    slack.training.member = true;
  });
  afterAll(async () => {
    await client?.connection.close();
    await stack?.stop();
    await slack?.stop();
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true, force: true });
  });

  const start = (spec: RunSpec) =>
    client.workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: 'longhaul',
      workflowId: `train/${spec.name}`,
      args: [spec],
    });
  const follower = () => {
    const found = stack.processes.find(({ name }) => name === 'follower');
    if (!found) throw new Error('the stack has no follower');
    return found;
  };
  const thread = (run: string) =>
    slack.training.messages.filter(({ metadata }) => metadata?.event_payload['run'] === run);
  const eventsOf = (run: string): unknown[] =>
    thread(run).map(({ metadata }) => metadata?.event_payload['id']);

  it('has each point once in its files, and each event once in its thread', async () => {
    const spec = {
      ...named('told'),
      tracking: { metrics_jsonl: true, tensorboard: true },
      slack: { channel: '#training' },
    };
    const run = await start({ ...spec, trainer: { ...spec.trainer, max_training_steps: 6 } });
    for (let kill = 0; kill < kills; kill++) {
      // Since the last kill, the new process has written one more event, or the beginning of the thread.
      const before = thread('told').length;
      await until(() => follower().pid !== null && thread('told').length > before, `kill ${kill + 1}`);
      process.kill(follower().pid ?? 0, 'SIGKILL');
    }
    await run.result();
    const ended = (): boolean => eventsOf('told').some((id) => String(id).startsWith('ended.'));
    await until(ended, 'the end of the run to be told');
    const events = eventsOf('told');
    console.log(`after ${kills} kills: ${events.join(' ')}`);
    expect(new Set(events).size).toBe(events.length);
    expect(events[0]).toBe('started');
    expect(events.at(-1)).toMatch(/^ended\.1\./);
    expect(events.filter((id) => String(id).startsWith('evaluation.'))).toHaveLength(3);
    expect(thread('told').every(({ ts, thread: root }) => root === null || ts > root)).toBe(true);
    expect(thread('told').filter(({ thread: root }) => root === null)).toHaveLength(1);

    const expected = await expectedPoints(store, 'told');
    const lines = (): string[] =>
      readFileSync(join(told('told'), 'metrics.jsonl'), 'utf8')
        .trimEnd()
        .split('\n');
    await until(() => lines().length >= expected.size, 'the last point to be written');
    const points = lines().map((line) => JSON.parse(line) as MetricPoint);
    expect(points.map(({ id }) => id).sort()).toEqual([...expected.keys()].sort());
    for (const point of points) expect(point).toEqual(expected.get(point.id));
    const boards = await eventIds(readFileSync(join(told('tensorboard'), 'told', eventFileName)));
    expect([...boards].sort()).toEqual([...expected.keys()].sort());
    expect(await readTroubles(store, 'told')).toEqual([]);
  });

  it('trains on if the bot is not in the channel, says so once, and reports everything after the bot is invited', async () => {
    slack.training.member = false;
    const run = await start({
      ...named('silent'),
      tracking: { metrics_jsonl: false, tensorboard: false },
      slack: { channel: 'C000000000', events: ['end'] },
    });
    await run.result();
    await until(async () => (await readTroubles(store, 'silent')).length > 0, 'a notice');
    expect(await readTroubles(store, 'silent')).toEqual([
      {
        sink: 'slack',
        trouble: expect.objectContaining({
          reason: expect.stringContaining('invite the bot: /invite @longhaul') as string,
        }) as object,
      },
    ]);
    // Each attempt takes a second, and the follower looks at its trouble every five seconds.
    const attempts = (): number => slack.callsOf('conversations.history').length;
    const before = attempts();
    await until(() => attempts() >= before + 7, 'more attempts');
    const log = readFileSync(join(folder, 'stack', 'logs', 'follower.log'), 'utf8');
    expect(log.split('\n').filter((line) => line.includes('silent: slack lacks'))).toHaveLength(1);
    expect(log).not.toContain(slack.token);
    slack.training.member = true;
    await until(() => eventsOf('silent').length > 1, 'the thread');
    expect(eventsOf('silent')).toEqual(['started', expect.stringMatching(/^ended\.1\./)]);
    await until(async () => (await readTroubles(store, 'silent')).length === 0, 'its end');
    expect(existsSync(join(told('silent'), 'metrics.jsonl'))).toBe(false);
  });
});
