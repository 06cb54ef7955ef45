// The report shows what was wrong with a run, whether or not a channel reported it.
import { expect, test } from 'vitest';
import { alertLines, alertsOfRun, alertTable } from '../../src/report/alerts.js';
import { readHistory } from '../../src/report/history/run-history.js';
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
