// The queries of docs/temporal-ui.md, on a real server with all kinds of runs: each query finds exactly the workflows that the page says.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { ApplicationFailure } from '@temporalio/common';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pauseUpdate } from '../../../src/workflows/messages.js';
import { type Answer, longhaul as commandLine } from '../../support/command-line.js';
import { startTemporal, type TestTemporal } from '../../support/servers/temporal-server.js';
import {
  gate,
  grpoPhases,
  outlineOf,
  type ScriptedRun,
  scriptRun,
  until,
  withRun,
  workflowBundle,
} from '../../workflows/scripted-run.js';

const page = readFileSync(resolve('docs/temporal-ui.md'), 'utf8');
/** The rows `| which | `query` |` of the page's table, without its head. */
const rows = [...page.matchAll(/^\| ([^|]+) \| `([^`]+)` \|$/gm)].map(([, which = '', query = '']) => ({
  which,
  query,
}));

/** Workflow ids that each query must find, in alphabetical order, by the page's text for the query. */
const finds: Record<string, string[]> = {
  'runs under way': ['train/blocked', 'train/crm-small', 'train/low', 'train/paused'],
  'runs that wait for a person': ['train/blocked', 'train/paused'],
  'blocked runs': ['train/blocked'],
  'runs of a project': ['train/blocked', 'train/crm-small', 'train/low', 'train/paused'],
  'runs of a project’s model': ['train/blocked', 'train/crm-small', 'train/paused'],
  'runs below a pass@1': ['train/low'],
  'runs under way that are below it after a hundred steps': ['train/low'],
  'sweeps of a project': ['eval/crm/nightly-1'],
  'what failed since a time': ['train/refused'],
  'one run with all its executions': ['train/crm-small'],
};

const folder = mkdtempSync(join(tmpdir(), 'longhaul-queries-'));
let temporal: TestTemporal;
beforeAll(async () => {
  [temporal] = await Promise.all([startTemporal(), workflowBundle()]);
});
afterAll(async () => {
  await temporal?.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function found(query: string): Promise<string[]> {
  const ids = new Set<string>();
  for await (const { workflowId } of temporal.client.workflow.list({ query })) ids.add(workflowId);
  return [...ids].sort();
}

const longhaul = (...args: string[]): Promise<Answer> =>
  commandLine([...args, '--temporal-address', temporal.address], { cwd: folder });

describe('the queries of docs/temporal-ui.md', () => {
  it('are all tested here', () => {
    expect(rows.map(({ which }) => which)).toEqual(Object.keys(finds));
  });

  it('find exactly what the page says on a real server', async () => {
    const long = grpoPhases(104);
    const scripts = ['crm-small', 'paused', 'blocked', 'low', 'refused'].map((name) =>
      scriptRun(
        outlineOf(name, { project: 'crm', ...(name === 'low' ? { model: 'smaller', phases: long } : {}) }),
      ),
    );
    const [small, paused, blocked, low, refused] = scripts as [
      ScriptedRun,
      ScriptedRun,
      ScriptedRun,
      ScriptedRun,
      ScriptedRun,
    ];
    // These records stand for a hundred steps that the run has already taken.
    for (let step = 0; step <= 100; step += 1) low.committed.set(step, { control: 0, lr: 0.1 });
    const held = { small: gate(), paused: gate(), low: gate() };
    for (const script of scripts) script.passAt1 = () => (script === low ? 0.1 : 0.5);
    small.before = (call) => (call === 'collect 6' ? held.small.wait() : undefined);
    paused.before = (call) => (call === 'collect 3' ? held.paused.wait() : undefined);
    low.before = (call) => (call === 'collect 103' ? held.low.wait() : undefined);
    blocked.before = (call) => {
      if (call === 'collect 3')
        throw ApplicationFailure.nonRetryable('booking is down', 'EnvironmentsUnavailable');
    };
    refused.before = () => {
      throw ApplicationFailure.nonRetryable('vocab_size must be 1024, not 100', 'InvalidSpec');
    };
    const serve = async (rest: readonly ScriptedRun[], then: () => Promise<void>): Promise<void> => {
      const [script, ...more] = rest;
      if (!script) return then();
      await withRun(temporal, script, async (run) => {
        await serve(more, then);
        await run.terminate().catch(() => undefined);
      });
    };
    await temporal.client.workflow.start('evalSweep', {
      taskQueue: 'nobody',
      workflowId: 'eval/crm/nightly-1',
    });
    await temporal.client.workflow.start('evalSweep', {
      taskQueue: 'nobody',
      workflowId: 'eval/hr/nightly-1',
    });
    await serve(scripts, async () => {
      const { client } = temporal;
      await held.paused.reached;
      await client.workflow.getHandle('train/paused').executeUpdate(pauseUpdate);
      held.paused.release();
      await until(client.workflow.getHandle('train/paused'), ({ phase }) => phase === 'paused');
      await until(client.workflow.getHandle('train/blocked'), ({ phase }) => phase === 'blocked');
      await Promise.all([held.small.reached, held.low.reached]);
      // Poll, because Temporal's visibility lags behind the histories.
      for (const { which, query } of rows)
        await expect
          .poll(() => found(query), { timeout: 120_000, message: `${which}: ${query}` })
          .toEqual(finds[which]);

      const { code, output } = await longhaul('runs', '--query', 'Phase = "blocked"', '--json');
      expect(code).toBe(0);
      expect(JSON.parse(output)).toMatchObject([{ run: 'blocked', status: 'running', phase: 'blocked' }]);
      expect((await longhaul('runs', '--query', 'Phase = "nowhere"')).output).toBe(
        'No run matches that query\n',
      );
      expect(await longhaul('runs', '--query', 'Phase is blocked')).toMatchObject({
        code: 2,
        errors: expect.stringMatching(
          /^error: the query is not understood by the Temporal server: .*\n$/,
        ) as string,
      });
      held.small.release();
      held.low.release();
    });
  });
});
