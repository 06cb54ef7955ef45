// A run's spending comes from its updates: sampled tokens, hours of nodes, and what was sent to a Tinker server.
import { expect, test } from 'vitest';
import { nothingWatched, type RaisedAlert, watchStep } from '../../src/rl/alerts.js';
import { costOf, metricsOfServed, spentBy, spentInAll } from '../../src/rl/spending.js';
import type { UpdateRecord } from '../../src/spec/records/update.js';
import { recordsOfAllKinds } from '../store/fixtures.js';

const sent = { train: 400, prefill: 3_000, sample: 50, saves: 2 };
const usd_per_million = { train: 1_000, prefill: 100, sample: 2_000 };

function updateWith(metrics: Record<string, number>, run = 'tiny'): UpdateRecord {
  const { update } = recordsOfAllKinds();
  return {
    ...update,
    identity: { ...update.identity, run, outcomes: [[1, null]] },
    observed: { ...update.observed, metrics, timings_ms: { in_flight: 1_800_000 } },
  };
}

test('an update without such figures has sent nothing to a server', () => {
  expect(spentBy(updateWith({ 'generate/avg_num_tokens': 10 }))).toEqual({ tokens: 20, gpu_seconds: 1800 });
});

test('a run’s own updates are added up, its parent’s are left out', () => {
  const own = [updateWith(metricsOfServed(sent)), updateWith({}), updateWith(metricsOfServed(sent))];
  const parents = updateWith(metricsOfServed(sent), 'parent');
  expect(spentInAll('tiny', [parents, ...own])).toEqual({
    ...{ tokens: 0, gpu_seconds: 3 * 1800 },
    served: { train: 800, prefill: 6_000, sample: 100, saves: 4 },
  });
  expect(spentInAll('tiny', [parents])).toEqual({ tokens: 0, gpu_seconds: 0 });
});

test('a step costs its hours and its tokens', () => {
  const step = spentBy(updateWith(metricsOfServed(sent)));
  expect(costOf(step, { usd_per_million })).toBeCloseTo(0.4 + 0.3 + 0.1, 12);
  expect(costOf(step, { usd_per_million, usd_per_gpu_hour: 2 })).toBeCloseTo(1.8, 12);
  expect(costOf(step, undefined)).toBe(0);
});

test('an alert says that the tokens of a server have nearly spent max_usd', () => {
  const budget = { max_usd: 1.9, usd_per_million };
  const update = updateWith(metricsOfServed(sent));
  const settings = { startedAt: update.observed.committed_at, budget };
  const first = watchStep(nothingWatched, update, settings);
  const aboutBudget = (alerts: readonly RaisedAlert[]) =>
    alerts.map(({ alert }) => alert).filter(({ about }) => about === 'budget_near');
  expect(aboutBudget(first.alerts)).toEqual([]);
  const second = watchStep(first.watch, update, settings);
  expect(second.watch.spent.usd).toBeCloseTo(1.6, 12);
  expect(aboutBudget(second.alerts)).toMatchObject([{ resource: 'max_usd', limit: 1.9 }]);
});
