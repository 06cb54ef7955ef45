// The report shows what was wrong with a run, whether or not a channel reported it.
import { expect, test } from 'vitest';
import { alertLines, alertsOfRun, alertTable } from '../../src/report/alerts.js';
import { readHistory } from '../../src/report/history/run-history.js';
import { stepsOfChanges } from '../../src/rl/environment-changes.js';
import { trajectoryTrends } from '../../src/report/charts/trajectory-trends.js';
import { trends } from '../../src/report/charts/trends.js';
import { recordedRun } from './recorded-run.js';

test('a run’s alerts that still hold come first, and each alert is listed once with all of its steps', async () => {
  const { record, updates } = await readHistory(await recordedRun(), 'tiny');
  // A quarter of each step's episodes has an unknown outcome.
  const norms = new Map([
    [20, 40],
    [25, 7],
  ]);
  const wrecked = updates.map((update) => {
    const { step } = update.identity;
    const metrics = {
      ...update.observed.metrics,
      ...(step > 37 ? { 'reward/avg_raw_reward': 0 } : {}),
      ...(norms.has(step) ? { 'policy/grad_norm': norms.get(step)! } : {}),
    };
    return { ...update, observed: { ...update.observed, metrics } };
  });
  const alerts = alertsOfRun(record, wrecked);
  expect(alerts.map(({ name, steps: at, holds }) => [name, at, holds])).toEqual([
    ['reward_collapsed', [41], true],
    ['unknown_outcomes', [3], true],
    ['gradient_norm', [20, 25], false],
  ]);
  expect(alertLines(alerts)).toEqual([
    expect.stringMatching(
      /^warning: Reward Collapsed since step 41: the last 5 steps had a mean reward of 0\.148;/,
    ),
    expect.stringMatching(/^warning: Unknown Outcomes since step 3: all environments: 25\.0 % of episodes/),
    'earlier: Gradient Norm (steps 20, 25)',
  ]);
  const html = alertTable(alerts) ?? '';
  for (const part of ['Reward Collapsed', 'Unknown Outcomes', 'steps 20, 25', 'holds', 'ended'])
    expect(html).toContain(part);
  expect(alertTable([])).toBeNull();
  // A fork's report covers only its own steps.
  expect(alertsOfRun({ ...record, run: 'fork' }, wrecked)).toEqual([]);
});

test('a changed environment stays an alert, and the curves are parted at its step', async () => {
  const history = await readHistory(await recordedRun(), 'tiny');
  const tools = (fill: string): string => fill.repeat(64);
  const served = history.updates.map((update) => {
    const { step } = update.identity;
    const isNew = step >= 20;
    // At step 25 the server is full and tells its tools to nobody; at step 30 nobody answers.
    const tracker = {
      ...{ name: 'tracker', version: isNew ? '2' : '1' },
      ...(step === 25 ? {} : { tools: tools(step >= 33 ? 'b' : 'a') }),
    };
    const environments = step === 30 ? {} : { environments: { tracker } };
    return { ...update, observed: { ...update.observed, ...environments } };
  });
  const alerts = alertsOfRun(history.record, served).filter(({ name }) => name.startsWith('environment'));
  expect(alerts).toMatchObject([
    {
      name: 'environment_changed.tracker',
      steps: [20, 33],
      holds: true,
      alert: { changes: ['other tools'] },
    },
  ]);
  expect(alertLines(alerts)).toEqual([
    expect.stringMatching(
      /^warning: Environment Changed .*the server of tracker is another one \(other tools\)/,
    ),
  ]);
  expect(stepsOfChanges(served)).toEqual([20, 33]);
  expect(stepsOfChanges(history.updates)).toEqual([]);
  const parts = (updates: typeof served): number =>
    (trends(updates).match(/<polyline class="line raw"/g) ?? []).length;
  expect(parts(served)).toBe(3 * parts(history.updates));
  const page = trends(served);
  expect(page).toContain('an environment changed at step 20');
  expect(page).toContain('an environment changed at step 33');
  expect(trends(history.updates)).not.toContain('an environment changed');

  // Episodes are read of some steps only: between two changes there may be one of them.
  const points = [5, 10, 25, 40, 45].map((step) => ({
    ...{ step, turns: step, repeating: 0.5, premature: 0, cutOff: 0.1 },
  }));
  const charts = trajectoryTrends(points, stepsOfChanges(served));
  expect(charts.match(/<figure>/g)).toHaveLength(3);
  expect(charts.match(/an environment changed at step (20|33)/g)).toHaveLength(3 * 2);
  expect(charts.match(/<polyline class="line/g)).toHaveLength(3 * 2);
  expect(charts.match(/<circle class="dot/g)).toHaveLength(3);
  const whole = trajectoryTrends(points, stepsOfChanges(history.updates));
  expect(whole.match(/<polyline class="line/g)).toHaveLength(3);
  expect(whole).not.toMatch(/an environment changed|<circle/);
});

test('the name of an environment is shown as text, not as markup', () => {
  const alert = {
    about: 'tool_error_rate',
    environment: '<img src=x>',
    rate: 0.6,
    threshold: 0.5,
  } as const;
  const one = { name: 'x', step: 1, at: '', alert, steps: [1], holds: true };
  expect(alertTable([one])).not.toContain('<img');
});
