// Runs on servers that grade nothing: no figure over graded outcomes is recorded, sent or shown. It holds whether such a run goes on to
// its end or is blocked on the way.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { MetricPoint } from '../../src/integrations/tracking/metric-point.js';
import { nothingGraded } from '../../src/spec/pass-rate.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { ObjectStore } from '../../src/store/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { requireRecord } from '../../src/store/records.js';
import { lastCommittedStep, readUpdate } from '../../src/store/run-records.js';
import { freePort } from '../../src/workers/free-port.js';
import { type Stack, startStack } from '../../src/workers/stack.js';
import { statusQuery } from '../../src/workflows/messages.js';
import type { trainingRun } from '../../src/workflows/training-run.js';
import { findEngine } from '../support/find-tools.js';
import { type OpenEnvFixture, startOpenEnvFixture } from '../support/openenv-fixture.js';
import { ensurePythonVenv } from '../support/python-venv.js';
import { SlackServer } from '../support/slack-server.js';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';

const venv = await ensurePythonVenv(['openenv==0.10.0']);
if ('skipped' in venv) console.warn(`skipped in part: no OpenEnv server can run here: ${venv.skipped}`);
type Server = 'unknown-tasks' | 'gym' | 'rewardless';
const servers: Server[] = 'skipped' in venv ? ['unknown-tasks'] : ['unknown-tasks', 'gym', 'rewardless'];

const folder = mkdtempSync(join(tmpdir(), 'longhaul-ungraded-'));
const stackFolder = join(folder, 'stack');
/** Shares of what was played, graded or not. */
const countsAll = /unknown|tool_error|\/(graded|mean_turns|mean_tool_calls)$/;
const overGraded = /^(reward|eval)\/|^generate\/avg_tokens_(non_)?zero_rewards$/;

describe('a run on a server that grades nothing', { timeout: 900_000 }, () => {
  let slack: SlackServer;
  let stack: Stack;
  let client: Client;
  let store: ObjectStore;
  let named: (name: string) => RunSpec;
  let unknownTasks: string;
  const fixtures: OpenEnvFixture[] = [];

  beforeAll(async () => {
    slack = await SlackServer.start();
    vi.stubEnv('SLACK_API_URL', slack.url);
    vi.stubEnv('SLACK_BOT_TOKEN', slack.token);
    ({ named } = await smallRun(join(folder, 'data')));
    const tasks = readFileSync(join(folder, 'data', 'tasks.jsonl'), 'utf8')
      .trimEnd()
      .split('\n');
    unknownTasks = join(folder, 'data', 'unknown-tasks.jsonl');
    const renamed = tasks.map((line, index) => {
      const task = JSON.parse(line) as { task_key: string };
      return JSON.stringify({ ...task, task_key: `nowhere/${index}` });
    });
    writeFileSync(unknownTasks, `${renamed.join('\n')}\n`);
    const built = (path: string): string => resolve('dist', path);
    stack = await startStack({
      folder: stackFolder,
      engine: findEngine(),
      scripts: {
        orchestrator: built('workers/orchestrator-main.js'),
        node: built('workers/node-main.js'),
        environments: built('environments/server/main.js'),
        follower: built('workers/follower-main.js'),
      },
      log: (message) => console.log(message),
      gaveUp: (error) => console.error(error),
      temporalPort: await freePort(),
      uiPort: await freePort(),
    });
    client = new Client({ connection: await Connection.connect({ address: stack.addresses.temporal }) });
    store = await openStore(stack.addresses.store);
  }, 300_000);
  afterAll(async () => {
    await client?.connection.close();
    await stack?.stop();
    await slack?.stop();
    await Promise.all(fixtures.map((one) => one.stop()));
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true, force: true });
  });

  async function specOf(name: Server): Promise<RunSpec> {
    const spec = {
      ...named(name),
      // States of its own: else it adopts what another of these runs has played.
      seed: 1 + servers.indexOf(name),
      tracking: { metrics_jsonl: true, tensorboard: false },
      slack: { channel: '#training' },
    };
    const trainer = { ...spec.trainer, max_training_steps: 1 };
    if (name === 'unknown-tasks') return { ...spec, trainer, data: { ...spec.data, tasks: unknownTasks } };
    const python = 'python' in venv ? venv.python : '';
    const fixture = await startOpenEnvFixture(python, 16, name);
    fixtures.push(fixture);
    const environments = spec.environments.map((one) => ({ ...one, url: fixture.url }));
    return { ...spec, trainer, environments };
  }

  function longhaul(...args: string[]): string {
    const { stdout, stderr } = spawnSync(resolve('bin/longhaul'), [...args, '--folder', stackFolder], {
      encoding: 'utf8',
      env: { ...process.env, NO_COLOR: '1' },
    });
    return `${stdout}${stderr}`;
  }

  it.each(servers)('%s: has no figure of it anywhere', async (name) => {
    const spec = await specOf(name);
    const handle = await client.workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: 'longhaul',
      workflowId: `train/${spec.name}`,
      args: [spec],
    });
    let blocked: string | null = null;
    await until(
      async () => {
        const status = await handle.query(statusQuery).catch(() => null);
        blocked = status?.blocked?.reason ?? null;
        return blocked !== null || (await handle.describe()).status.name !== 'RUNNING';
      },
      `${name} to end or to be blocked`,
      420_000,
    );
    console.log(
      `${name}: ${blocked === null ? (await handle.describe()).status.name : `blocked: ${blocked}`}`,
    );

    const { evaluations, steps } = await recorded(name);
    if (blocked === null) expect([evaluations, steps]).toEqual([2, 1]);
    console.log(`${name}: ${evaluations} evaluations and ${steps} GRPO steps recorded`);

    const status = longhaul('status', name);
    console.log(status);
    expect(status).not.toMatch(/pass@1 \d|reward \d/);
    const json = JSON.parse(longhaul('status', name, '--json').split('\n')[0] ?? '') as {
      evaluations: { pass_at_1: number | null; graded: number }[];
    };
    expect(json.evaluations.filter(({ pass_at_1, graded }) => pass_at_1 !== null || graded > 0)).toEqual([]);
    if (json.evaluations.length > 0) expect(status).toContain(`pass@1 – (${nothingGraded})`);
    expect(longhaul('runs')).not.toContain(' %');

    const page = join(folder, `${name}.html`);
    longhaul('report', name, '--output', page);
    expect(existsSync(page), 'a report').toBe(true);
    const report = readFileSync(page, 'utf8');
    expect(report).not.toMatch(/class="big">[^–]*%/);
    if (evaluations > 0) expect(report).toContain(nothingGraded);

    const told = (): string[] =>
      slack.training.messages
        .filter(({ metadata }) => metadata?.event_payload['run'] === name)
        .map(({ text, blocks }) => `${text} ${JSON.stringify(blocks)}`);
    await until(
      () => told().filter((text) => text.includes('Evaluation')).length >= evaluations,
      'Slack to be told',
      120_000,
    );
    expect(told().filter((text) => /pass@1[^%]{0,20} \d[\d.]* %/.test(text))).toEqual([]);

    const file = join(stackFolder, 'follower', 'tracking', name, 'metrics.jsonl');
    const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
    const points = lines.filter((line) => line !== '').map((line) => JSON.parse(line) as MetricPoint);
    // One that is blocked by its first evaluation has taken no step.
    if (blocked === null) expect(points.length).toBeGreaterThanOrEqual(1);
    const figures = points.flatMap(({ values }) => Object.keys(values));
    expect(figures.filter((figure) => overGraded.test(figure) && !countsAll.test(figure))).toEqual([]);
    if (blocked !== null) await handle.terminate();
  });

  /** Looks through all records of the run that hold a figure over graded outcomes. */
  async function recorded(run: string): Promise<{ evaluations: number; steps: number }> {
    let evaluations = 0;
    let steps = 0;
    const states = new Set<string>();
    for (let step = 1; step <= (await lastCommittedStep(store, run)); step++) {
      const { identity, observed } = await readUpdate(store, run, step);
      states.add(identity.state).add(identity.previous_state);
      if (identity.kind !== 'grpo') continue;
      steps += 1;
      expect(identity.outcomes.flat().filter((value) => value !== null)).toEqual([]);
      const names = Object.keys(observed.metrics);
      expect(names.filter((name) => overGraded.test(name) && !countsAll.test(name))).toEqual([]);
    }
    for await (const { key } of store.list('evals/')) {
      if (!key.endsWith('/result.json') || !states.has(key.split('/')[1] ?? '')) continue;
      const result = await requireRecord(store, key, 'evaluation');
      if (result.observed.run !== run) continue;
      evaluations += 1;
      for (const figures of [result, ...Object.values(result.environments)])
        expect([figures.graded, figures.pass_at_1]).toEqual([0, null]);
    }
    for await (const { key } of store.list(`trajectories/evals/${run}/`)) {
      if (!key.endsWith('aggregated_results.jsonl')) continue;
      expect(Buffer.from((await store.get(key)) ?? []).toString()).not.toContain('pass_at_1');
    }
    return { evaluations, steps };
  }
});
