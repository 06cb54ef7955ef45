// Runs on servers that grade nothing. No figure over graded outcomes is recorded, sent or shown, and each run is blocked with the reason.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Client, Connection, type WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { MetricPoint } from '../../src/integrations/tracking/metric-point.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { openStore } from '../../src/store/open-store.js';
import { requireRecord } from '../../src/store/records/records.js';
import { lastCommittedStep, readUpdate } from '../../src/store/runs/run-records.js';
import { freePort } from '../../src/stack/free-port.js';
import { type Stack, startStack } from '../../src/stack/stack.js';
import { statusQuery } from '../../src/workflows/messages.js';
import type { trainingRun } from '../../src/workflows/run/training-run.js';
import { findEngine } from '../support/find-tools.js';
import { type OpenEnvFixture, startOpenEnvFixture } from '../support/servers/openenv-fixture.js';
import { pythonWith } from '../support/python/python-environments.js';
import { SlackServer } from '../support/servers/slack-server.js';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';

const python = await pythonWith('openenv');
type Server = 'unknown-tasks' | 'gym' | 'rewardless';
const servers: Server[] = python ? ['unknown-tasks', 'gym', 'rewardless'] : ['unknown-tasks'];
const reasons: Record<Server, RegExp> = {
  'unknown-tasks': /open/,
  gym: /open/,
  rewardless: /gave no reward and no grade/,
};

type Handle = WorkflowHandle<typeof trainingRun>;

const folder = mkdtempSync(join(tmpdir(), 'longhaul-ungraded-'));
const stackFolder = join(folder, 'stack');
/** Names of figures that count all played episodes, graded or not. */
const countsAll = /unknown|tool_error|\/(graded|mean_turns|mean_tool_calls)$/;
const overGraded = /^(reward|eval)\/|^generate\/avg_tokens_(non_)?zero_rewards$/;

describe('a run on a server that grades nothing', () => {
  let slack: SlackServer;
  let stack: Stack;
  let client: Client;
  let store: ObjectStore;
  let named: (name: string) => RunSpec;
  let unknownTasks: string;
  let unknownTrainTasks: string;
  const fixtures: OpenEnvFixture[] = [];

  beforeAll(async () => {
    slack = await SlackServer.start();
    vi.stubEnv('SLACK_API_URL', slack.url);
    vi.stubEnv('SLACK_BOT_TOKEN', slack.token);
    ({ named } = await smallRun(join(folder, 'data')));
    const tasks = readFileSync(join(folder, 'data', 'tasks.jsonl'), 'utf8')
      .trimEnd()
      .split('\n');
    const renamed = (isRenamed: (split: string) => boolean): string =>
      tasks
        .map((line, index) => {
          const task = JSON.parse(line) as { task_key: string; split: string };
          return `${JSON.stringify(isRenamed(task.split) ? { ...task, task_key: `nowhere/${index}` } : task)}\n`;
        })
        .join('');
    unknownTasks = join(folder, 'data', 'unknown-tasks.jsonl');
    writeFileSync(
      unknownTasks,
      renamed(() => true),
    );
    unknownTrainTasks = join(folder, 'data', 'unknown-train-tasks.jsonl');
    writeFileSync(
      unknownTrainTasks,
      renamed((split) => split === 'train'),
    );
    const built = (path: string): string => resolve('dist', path);
    stack = await startStack({
      folder: stackFolder,
      engine: findEngine(),
      scripts: {
        orchestrator: built('workers/orchestrator-main.js'),
        node: built('workers/node-main.js'),
        environments: [process.execPath, built('examples/apps/server/main.js')],
        follower: built('workers/follower-main.js'),
      },
      log: (message) => console.log(message),
      gaveUp: (error) => console.error(error),
      temporalPort: await freePort(),
      uiPort: await freePort(),
    });
    client = new Client({ connection: await Connection.connect({ address: stack.addresses.temporal }) });
    store = await openStore(stack.addresses.store);
  });
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
      // Each run has its own seed and so its own states: otherwise it would adopt evaluations of the other runs.
      seed: 1 + servers.indexOf(name),
      tracking: { metrics_jsonl: true, tensorboard: false },
      slack: { channel: '#training' },
    };
    const trainer = { ...spec.trainer, max_training_steps: 1 };
    if (name === 'unknown-tasks') return { ...spec, trainer, data: { ...spec.data, tasks: unknownTasks } };
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

  /** Waits until the run is blocked, and returns the reason. */
  async function blockedRun(spec: RunSpec): Promise<{ handle: Handle; blocked: string }> {
    const handle = await client.workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: 'longhaul',
      workflowId: `train/${spec.name}`,
      args: [spec],
    });
    let blocked: string | null = null;
    await until(
      async () => {
        blocked = (await handle.query(statusQuery).catch(() => null))?.blocked?.reason ?? null;
        return blocked !== null || (await handle.describe()).status.name !== 'RUNNING';
      },
      `${spec.name} to be blocked`,
      420_000,
    );
    if (blocked === null) throw new Error(`${spec.name} has ended`);
    console.log(`${spec.name}: blocked: ${blocked}`);
    return { handle, blocked };
  }

  it.each(servers)(
    '(%s) is blocked by its first evaluation, and no figure of that evaluation exists anywhere',
    async (name) => {
      const spec = await specOf(name);
      const { handle, blocked } = await blockedRun(spec);
      expect(blocked).toMatch(/no outcome was graded \(\d+ of \d+ are unknown\)/);
      expect(blocked).toMatch(reasons[name]);
      expect(await recorded(name)).toEqual({ evaluations: 0, steps: 0 });

      const status = longhaul('status', name);
      console.log(status);
      expect(status).not.toMatch(/pass@1 \d|reward \d/);
      const json = JSON.parse(longhaul('status', name, '--json').split('\n')[0] ?? '') as {
        evaluations: { pass_at_1: number | null; graded: number }[];
      };
      expect(json.evaluations.filter(({ pass_at_1, graded }) => pass_at_1 !== null || graded > 0)).toEqual(
        [],
      );
      expect(
        longhaul('runs')
          .split('\n')
          .find((line) => line.startsWith(`${name} `)),
      ).not.toContain(' %');
      expect(longhaul('transcripts', name)).toMatch(reasons[name]);

      const page = join(folder, `${name}.html`);
      longhaul('report', name, '--output', page);
      expect(existsSync(page), 'a report').toBe(true);
      const report = readFileSync(page, 'utf8');
      expect(report).not.toMatch(/class="big">[^–]*%/);
      expect(report).toContain('has no result yet');
      expect(report).toMatch(reasons[name]);

      const told = (): string[] =>
        slack.training.messages
          .filter(({ metadata }) => metadata?.event_payload['run'] === name)
          .map(({ text, blocks }) => `${text} ${JSON.stringify(blocks)}`);
      await until(
        () => told().some((text) => /^Blocked/.test(text) && reasons[name].test(text)),
        'Slack to be told why the run is blocked',
        120_000,
      );
      expect(told().filter((text) => /pass@1[^%]{0,20} \d[\d.]* %/.test(text))).toEqual([]);
      expect(pointsOf(name).flatMap(({ values }) => Object.keys(values))).toEqual([]);
      await handle.terminate();
    },
  );

  it('is blocked by two steps in a row without a grade, which have no figure over graded outcomes', async () => {
    const name = 'unknown-train-tasks';
    const spec = { ...named(name), tracking: { metrics_jsonl: true, tensorboard: false } };
    const { handle, blocked } = await blockedRun({
      ...spec,
      data: { ...spec.data, tasks: unknownTrainTasks },
    });
    expect(blocked).toMatch(/2 steps in a row had too few grades.*no outcome was graded/);
    expect(await recorded(name)).toMatchObject({ steps: 2 });
    const steps = (): MetricPoint[] => pointsOf(name).filter(({ values }) => 'reward/unknown' in values);
    await until(() => steps().length === 2, 'both steps to be told', 120_000);
    for (const { values } of steps()) {
      expect(values['reward/unknown']).toBe(8);
      expect(
        Object.keys(values).filter((figure) => /^reward\//.test(figure) && !countsAll.test(figure)),
      ).toEqual([]);
    }
    expect(longhaul('status', name)).not.toMatch(/reward \d/);
    await handle.terminate();
  });

  function pointsOf(name: string): MetricPoint[] {
    const file = join(stackFolder, 'follower', 'tracking', name, 'metrics.jsonl');
    const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
    return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as MetricPoint);
  }

  /** Checks all records of the run that could hold a figure over graded outcomes. */
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
      for (const { graded, pass_at_1 } of [result, ...Object.values(result.environments)])
        expect(pass_at_1 === null).toBe(graded === 0);
    }
    return { evaluations, steps };
  }
});
