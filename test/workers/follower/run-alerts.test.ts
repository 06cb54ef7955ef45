// Alerts of a run: each is raised once, when its condition begins to hold, for any reader at any time.
import { describe, expect, it } from 'vitest';
import { nothingWatched, stalledSince, watchStep } from '../../../src/rl/alerts.js';
import { type EventCursor, newEventCursor } from '../../../src/workers/follower/run-events.js';
import type { RunEvent } from '../../../src/integrations/slack/run-event.js';
import { ownersFolder, sequenceKey } from '../../../src/store/record-keys.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { memoryStore } from './memory-store.js';
import { alerts, contextAt, readAll, storeOf } from './read-events.js';
import { recordsOf, timeOf, writeAll, writeControl, type WrittenRun } from './written-run.js';

describe('alerts', () => {
  it('about tool errors are raised when the rate exceeds a half, and again only after it fell', async () => {
    const rates = [0, 0.4, 0.62, 0.9, 0.45, 0.6, 0.3, 0.7];
    const { events } = await readAll(
      await storeOf({
        steps: 7,
        metrics: (step) => ({ 'environment/crm/eu/tool_error_rate': rates[step]! }),
      }),
    );
    expect(alerts(events).map(({ id }) => id)).toEqual([
      'alert.tool_error_rate.crm/eu.2',
      'alert.tool_error_rate.crm/eu.7',
    ]);
    expect(alerts(events)[0]?.alert).toEqual({
      about: 'tool_error_rate',
      environment: 'crm/eu',
      rate: 0.62,
      threshold: 0.5,
    });
  });

  it('about tool errors are raised for each environment separately', async () => {
    const rates: Record<string, number[]> = {
      'crm/eu': [0, 0.6, 0.6, 0.1, 0.6],
      calendar: [0, 0.2, 0.7, 0.7, 0.7],
      files: [0, 0.5, 0.5, 0.5, 0.5],
    };
    const metrics = (step: number): Record<string, number> =>
      Object.fromEntries(
        Object.entries(rates).map(([name, one]) => [`environment/${name}/tool_error_rate`, one[step]!]),
      );
    const { events } = await readAll(await storeOf({ steps: 4, metrics }));
    expect(alerts(events).map(({ id, alert }) => [id, alert])).toEqual([
      ['alert.tool_error_rate.crm/eu.1', expect.objectContaining({ environment: 'crm/eu', rate: 0.6 })],
      ['alert.tool_error_rate.calendar.2', expect.objectContaining({ environment: 'calendar', rate: 0.7 })],
      ['alert.tool_error_rate.crm/eu.4', expect.objectContaining({ environment: 'crm/eu', rate: 0.6 })],
    ]);
  });

  it.each([
    [20, []],
    [21, ['alert.unknown_outcomes.1']],
  ])('about unknown outcomes are raised for more than 20 of 100: %i', async (unknown, raised) => {
    const outcomes = [Array.from({ length: 100 }, (_, index) => (index < unknown ? null : 1))];
    const { events } = await readAll(await storeOf({ steps: 1, outcomes }));
    expect(alerts(events).map(({ id }) => id)).toEqual(raised);
  });

  it('about a missing signal are raised after three steps in a row, and about a skipped update at once', async () => {
    const { events } = await readAll(
      await storeOf({
        steps: 12,
        metrics: (step) => ({ 'reward/signal_ratio': [2, 3, 5, 6, 7, 8].includes(step) ? 0 : 0.5 }),
        unapplied: new Map([
          [6, 'no_signal'],
          [10, 'non_finite'],
        ]),
      }),
    );
    expect(alerts(events).map(({ id, alert }) => [id, alert])).toEqual([
      ['alert.no_learning_signal.7', { about: 'no_learning_signal', steps: 3, signalRatio: 0 }],
      ['alert.update_skipped.10', { about: 'update_skipped', reason: 'non_finite' }],
    ]);
  });

  it('about a reward are raised when its mean falls to a quarter of the best, and again only after it recovered', async () => {
    const rewards = [
      0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0, 0, 0, 0, 0, 0, 0.2, 0.2, 0.6, 0.6, 0.6, 0.6, 0, 0, 0, 0,
    ];
    const { events } = await readAll(
      await storeOf({
        steps: rewards.length,
        metrics: (step) => ({ 'reward/avg_raw_reward': rewards[step - 1]! }),
      }),
    );
    expect(alerts(events).map(({ id }) => id)).toEqual([
      'alert.reward_collapsed.10',
      'alert.reward_collapsed.22',
    ]);
    expect(alerts(events)[0]?.alert).toEqual({
      about: 'reward_collapsed',
      reward: expect.closeTo(0.12) as number,
      best: expect.closeTo(0.6) as number,
      steps: 5,
    });
  });

  it.each([
    ['it falls at the second step', [0.5, 0, 0, 0, 0, 0], ['alert.reward_collapsed.5']],
    ['it was always low', [0.08, 0.05, 0, 0, 0, 0, 0, 0], []],
    ['it is always below 0', [-1, -1, -2, -2, -5, -9, -9, -9], []],
    ['it falls less, on harder tasks', [0.9, 0.9, 0.9, 0.9, 0.9, 0.4, 0.3, 0.3, 0.3, 0.3], []],
  ])('about a reward are raised only if it collapses: %s', async (_, rewards, raised) => {
    const metrics = (step: number) => ({ 'reward/avg_raw_reward': rewards[step - 1]! });
    const { events } = await readAll(await storeOf({ steps: rewards.length, metrics }));
    expect(alerts(events).map(({ id }) => id)).toEqual(raised);
  });

  describe('about a drift', () => {
    const drifting = async (levels: readonly (readonly [reward: number, passAt1: number])[]) => {
      const metrics = (step: number) => ({
        'reward/crm/eu/avg_raw_reward': levels[step - 1]![0],
        'reward/crm/eu/pass_at_1': levels[step - 1]![1],
      });
      return alerts((await readAll(await storeOf({ steps: levels.length, metrics }))).events);
    };
    const times = (count: number, level: readonly [number, number]) =>
      Array.from({ length: count }, () => level);

    it('are raised when an environment’s reward rises and its pass@1 falls, and again only after that has ceased', async () => {
      const [healthy, hacked, between] = [
        [0.4, 0.3],
        [0.7, 0.1],
        [0.6, 0.23],
      ] as const;
      const raised = await drifting([
        ...times(6, healthy),
        ...times(6, hacked),
        // Between the limits it still holds.
        ...times(6, between),
        ...times(6, hacked),
        ...times(6, healthy),
        ...times(6, hacked),
      ]);
      expect(raised.map(({ id }) => id)).toEqual([
        'alert.reward_drift.crm/eu.9',
        'alert.reward_drift.crm/eu.33',
      ]);
      expect(raised[0]?.alert).toEqual({
        ...{ about: 'reward_drift', environment: 'crm/eu', steps: 5 },
        now: { reward: expect.closeTo(0.58) as number, pass_at_1: expect.closeTo(0.18) as number },
        best: { reward: expect.closeTo(0.4) as number, pass_at_1: expect.closeTo(0.3) as number },
      });
    });

    it.each([
      ['a falling pass@1 with rewards of 0 and 1', (step: number) => [1 - step / 40, 1 - step / 40]],
      ['both rising', (step: number) => [0.3 + step / 50, step / 50]],
      ['both falling, on harder tasks', (step: number) => [0.9 - step / 50, 0.8 - step / 50]],
      ['a rising reward without any pass', (step: number) => [step / 40, 0]],
      ['one odd step', (step: number) => (step === 15 ? [0.9, 0] : [0.5, 0.4])],
    ] as const)('are not raised by %s', async (_, level) => {
      const levels = Array.from({ length: 30 }, (_, index) => level(index + 1) as [number, number]);
      expect(await drifting(levels)).toEqual([]);
    });
  });

  it('about entropy are raised when it vanishes, not if it was low from the start', async () => {
    const raisedBy = async (entropy: (step: number) => number) => {
      const metrics = (step: number) => ({ 'policy/policy_entropy': entropy(step) });
      return alerts((await readAll(await storeOf({ steps: 20, metrics }))).events);
    };
    expect(await raisedBy((step) => (step < 10 ? 0.4 : 0.001))).toMatchObject([
      {
        id: 'alert.entropy_gone.14',
        alert: { entropy: expect.closeTo(0.001) as number, highest: expect.closeTo(0.4) as number },
      },
    ]);
    expect(await raisedBy(() => 0.004)).toEqual([]);
    expect(await raisedBy((step) => 0.4 / step)).toEqual([]);
  });

  it('about the gradient are raised when its norm is ten times the usual, for applied GRPO steps only', async () => {
    const norms = [0.5, 0.4, 0.6, 0.5, 0.5, 0.5, 40, 0.5, 90, 60, 0.5];
    const metrics = (step: number) => ({ 'policy/grad_norm': norms[step - 1]! });
    const options = { steps: norms.length, metrics, unapplied: new Map([[7, 'no_signal']]) };
    const { events } = await readAll(await storeOf(options));
    expect(alerts(events)).toMatchObject([
      { id: 'alert.gradient_norm.9', alert: { about: 'gradient_norm', norm: 90, usual: 0.5 } },
    ]);
    expect(alerts((await readAll(await storeOf({ ...options, kind: 'sft' }))).events)).toEqual([]);
  });

  it('about a missing signal ignore a step without grades, and do not start to count again after it', async () => {
    const metrics = (step: number) => ({ 'reward/signal_ratio': step % 2 === 1 ? 0 : NaN });
    const { events } = await readAll(await storeOf({ steps: 5, metrics, outcomes: [[1, 1]] }));
    expect(alerts(events).map(({ id }) => id)).toEqual(['alert.no_learning_signal.5']);
  });

  it('about unknown outcomes, a lost node and the budget are each raised once, at the first step that shows them', async () => {
    const { events } = await readAll(
      await storeOf({
        steps: 10,
        lostNodes: [6],
        budget: { max_tokens: 400, max_wall_s: 1000 },
        outcomes: [[1, 0, null, 1]],
      }),
    );
    // A quarter of each step's episodes have no outcome; each step has 41 tokens.
    expect(alerts(events).map(({ id }) => id)).toEqual([
      'alert.unknown_outcomes.1',
      'alert.node_lost.6',
      'alert.budget_near.max_tokens.400.8',
    ]);
    expect(alerts(events)[2]?.alert).toEqual({
      about: 'budget_near',
      resource: 'max_tokens',
      spent: 328,
      limit: 400,
    });
  });

  it('about a lost node are raised at each step with an attempt that reports one', async () => {
    const { events } = await readAll(await storeOf({ steps: 60, lostNodes: [6, 7, 40], outcomes: [[1, 0]] }));
    expect(alerts(events).map(({ id }) => id)).toEqual([
      'alert.node_lost.6',
      'alert.node_lost.7',
      'alert.node_lost.40',
    ]);
  });

  it('about a missing signal are raised only for reinforcement learning', async () => {
    const { events } = await readAll(
      await storeOf({ steps: 6, kind: 'sft', metrics: () => ({ 'reward/signal_ratio': 0 }) }),
    );
    expect(alerts(events)).toEqual([]);
  });

  it('about a budget count hours, dollars and seconds in the unit of their limit', async () => {
    // Each step takes 1.2345 s of the GPU and 100 s of time.
    const budget = { max_gpu_hours: (1.2345 * 10) / 3600, max_usd: 1.2345 * 5, max_wall_s: 1_500 };
    const { events } = await readAll(
      await storeOf({ steps: 12, stepSeconds: 100, budget, prices: [3600, 3600] }),
    );
    expect(alerts(events).map(({ id }) => id.replace(/\.[0-9.]+\.([0-9]+)$/, ' at $1'))).toEqual([
      'alert.budget_near.max_usd at 4',
      'alert.budget_near.max_gpu_hours at 8',
      'alert.budget_near.max_wall_s at 12',
    ]);
  });

  it('about the budget judge a step by the budget of its own start, for any reader at any time', async () => {
    // 82 tokens per step: the first start may spend 500 tokens, the second 1,000.
    const options: Partial<WrittenRun> = {
      steps: 12,
      budget: { max_tokens: 500 },
      secondBudget: { max_tokens: 1_000 },
      secondStart: 7,
    };
    const near = ['alert.budget_near.max_tokens.500.5', 'alert.budget_near.max_tokens.1000.10'];
    const { events } = await readAll(await storeOf(options));
    expect(alerts(events).map(({ id }) => id)).toEqual(near);
    const store = memoryStore();
    const seen: RunEvent[] = [];
    let cursor = newEventCursor;
    for (const { write, key } of recordsOf(options)) {
      await write(store);
      if (key.startsWith('datasets')) continue;
      const next = await readAll(store, cursor);
      cursor = next.cursor;
      seen.push(...next.events);
    }
    expect(alerts(seen).map(({ id }) => id)).toEqual(near);
  });

  it('about the budget notice a start that comes during the read', async () => {
    const options: Partial<WrittenRun> = {
      steps: 12,
      budget: { max_tokens: 500 },
      secondBudget: { max_tokens: 1_000 },
      secondStart: 3,
    };
    const records = recordsOf(options);
    const store = memoryStore();
    await writeAll(store, records.splice(0, 4));
    const { listFolder } = store;
    let goesOn: Promise<void> | undefined;
    store.listFolder = async (prefix) => {
      const found = await listFolder(prefix);
      if (prefix === ownersFolder('tiny')) await (goesOn ??= writeAll(store, records));
      return found;
    };
    const { events } = await readAll(store);
    expect(alerts(events).map(({ id }) => id)).toEqual(['alert.budget_near.max_tokens.1000.10']);
  });

  it('about a lost node name the node that committed the step before', () => {
    const before = { ...nothingWatched, worker: 'node-a@host pid 7' };
    const { update } = recordsOfAllKinds();
    const lost = {
      ...update,
      observed: { ...update.observed, worker: 'node-b@host pid 8', metrics: { 'ft/restarts/node_lost': 1 } },
    };
    const { alerts: raised } = watchStep(before, lost, { startedAt: timeOf(0), budget: undefined });
    expect(raised.find(({ alert }) => alert.about === 'node_lost')?.alert).toEqual({
      about: 'node_lost',
      node: 'node-a',
      detail: 'the run continues on node-b@host pid 8',
    });
  });

  it('about a standstill are raised after ten minutes at the earliest', () => {
    const watch = { ...nothingWatched, committedAt: timeOf(0), stepSeconds: [2, 2, 2] };
    expect(stalledSince(watch, 3, timeOf(599))).toBe(null);
    expect(stalledSince(watch, 3, timeOf(600))).toMatchObject({ alert: { seconds: 600, usualSeconds: 2 } });
  });

  it('about a standstill are raised once per step, not during a pause, and do not count its time', async () => {
    const store = await storeOf({ steps: 10, stepSeconds: 100 });
    const standstill = async (seconds: number, from?: EventCursor) => {
      const { events, cursor } = await readAll(store, from, contextAt(seconds));
      return { found: alerts(events).filter(({ alert }) => alert.about === 'stalled'), cursor };
    };
    const soon = await standstill(1_900);
    expect(soon.found).toEqual([]);
    const late = await standstill(2_100, soon.cursor);
    expect(late.found).toMatchObject([
      { id: 'alert.stalled.10', step: 10, alert: { seconds: 1_100, usualSeconds: 100 } },
    ]);
    expect((await standstill(3_000, late.cursor)).found).toEqual([]);
    await writeControl(store, 'tiny', 1, { kind: 'pause' }, 1_100);
    expect((await standstill(9_000, soon.cursor)).found).toEqual([]);
    await writeControl(store, 'tiny', 2, { kind: 'resume' }, 9_000);
    expect((await standstill(9_500, soon.cursor)).found).toEqual([]);
    expect((await standstill(10_100, soon.cursor)).found).toHaveLength(1);
  });

  it('about a standstill do not count the time between an end and the next start', async () => {
    const options = { steps: 10, stepSeconds: 100, secondStart: 10 };
    const store = memoryStore();
    // The second start comes a day later and has committed no step yet.
    const records = recordsOf(options).filter(({ key }) => !key.includes('owners/'));
    await writeAll(store, records);
    const owners = recordsOfAllKinds().owner;
    for (const [n, at] of [
      [1, timeOf(0)],
      [2, timeOf(86_400)],
    ] as const)
      await store.create(
        sequenceKey(ownersFolder('tiny'), n),
        await encodeRecord('owner', { ...owners, n, observed: { ...owners.observed, at } }),
      );
    const { events, cursor } = await readAll(store, newEventCursor, contextAt(86_900));
    expect(alerts(events)).toEqual([]);
    const later = await readAll(store, cursor, contextAt(86_400 + 1_100));
    expect(alerts(later.events)).toMatchObject([{ id: 'alert.stalled.10', alert: { seconds: 1_100 } }]);
  });

  it('about a standstill need some steps first, to know the usual time', () => {
    expect(
      stalledSince({ ...nothingWatched, committedAt: timeOf(0), stepSeconds: [1, 1] }, 2, timeOf(1e6)),
    ).toBe(null);
  });
});
