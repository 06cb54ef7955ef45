// A sweep file becomes a schedule that fires by itself. Later firings reuse the evaluations of the first firing.
import { describe, expect, it } from 'vitest';
import type { SweepResult } from '../../../src/workflows/sweep/sweep-messages.js';
import { parseSweepSpec } from '../../../src/sweeps/sweep-input.js';
import { appliedText, apply, list } from '../../../src/cli/sweeps/sweep-schedules.js';
import { resultText } from '../../../src/cli/sweeps/sweeps-command.js';
import { run } from '../../activities/fixture.js';
import { until } from '../../support/until.js';
import { type SweepStage, useSweeps } from '../../workflows/sweep/sweep-stage.js';

const nightly = (every: string) =>
  parseSweepSpec({
    name: 'nightly',
    project: 'tests',
    checkpoints: [{ run: '*', not_yet_evaluated: true }],
    data_of: run,
    suites: [{ name: 'final' }],
    schedule: { every },
  });

describe('a scheduled sweep', () => {
  let stage: SweepStage;
  useSweeps(2, (opened) => (stage = opened));

  it('fires by itself, evaluates the new states, and finds nothing to do the next time', async () => {
    const { client } = stage.temporal;
    await stage.node(stage.harness.node);
    expect(appliedText(await apply(client, nightly('3s')))).toMatch(
      /^nightly: schedule created\n {2}fires 2/,
    );
    expect(appliedText(await apply(client, nightly('3s')))).toMatch(/^nightly: schedule unchanged/);
    const ended = await until(async () => {
      const found: SweepResult[] = [];
      const closed = client.workflow.list({
        query: "WorkflowType = 'evalSweep' AND ExecutionStatus = 'Completed'",
      });
      for await (const { workflowId } of closed)
        found.push((await client.workflow.getHandle(workflowId).result()) as SweepResult);
      return found.length >= 2 ? found : null;
    }, 'two firings to end');
    const byAge = ended.sort((a, b) => (a.sweep < b.sweep ? -1 : 1));
    expect(byAge[0]).toMatchObject({ ended: 'completed', pairs: 2, episodes: 6 });
    expect(byAge[1]).toMatchObject({ ended: 'completed', pairs: 0, episodes: 0 });
    expect(byAge[0]?.sweep).toMatch(/^tests\/nightly-\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\dZ$/);
    if (byAge[0]) expect(resultText(byAge[0])).toContain('2 evaluations, 6 episodes played');

    expect(appliedText(await apply(client, nightly('1h')))).toMatch(/^nightly: schedule updated/);
    await client.schedule.getHandle('sweep/tests/nightly').pause();
    const line = await until(async () => {
      const [found] = await list(client);
      return found?.state === 'paused' ? found : null;
    }, 'the list to show the pause');
    expect(line).toMatchObject({ sweep: 'nightly', project: 'tests', next: null });
    const { schedule: _, ...without } = nightly('1h');
    expect(appliedText(await apply(client, without))).toBe('nightly has no schedule any more');
  });
});
