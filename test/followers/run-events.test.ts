// What is told of a run: each thing once, under the same id whoever reads and however often, and alerts when they begin to hold.
import { describe, expect, it } from 'vitest';
import { nothingWatched, stalledSince, watchStep } from '../../src/followers/alerts.js';
import {
  type EventContext,
  type EventCursor,
  newEventCursor,
  readRunEvents,
  type RunEnding,
} from '../../src/followers/run-events.js';
import type { AlertRaised, RunEvent } from '../../src/integrations/slack/run-event.js';
import type { ObjectStore } from '../../src/store/object-store.js';
import {
  checkpointFileKey,
  checkpointManifestKey,
  ownersFolder,
  sequenceKey,
} from '../../src/store/layout.js';
import { encodeRecord } from '../../src/store/record-codec.js';
import { recordsOfAllKinds } from '../store/fixtures.js';
import { memoryStore } from './memory-store.js';
import {
  recordsOf,
  timeOf,
  writeAll,
  type Written,
  writeCheckpoint,
  writeControl,
  type WrittenRun,
} from './written-run.js';

const noChart = async (): Promise<null> => null;
const contextAt = (seconds: number, ending: RunEnding | null = null): EventContext => ({
  links: [{ label: 'UI', url: 'http://localhost:8233' }],
  modality: 'tool_use',
  now: timeOf(seconds),
  ending,
  chart: noChart,
});

async function readAll(
  store: ObjectStore,
  from: EventCursor = newEventCursor,
  context = contextAt(0),
): Promise<{ events: RunEvent[]; cursor: EventCursor }> {
  const events: RunEvent[] = [];
  let cursor = from;
  for (;;) {
    const page = await readRunEvents(store, 'tiny', cursor, context);
    events.push(...page.events);
    // As it is kept: through JSON.
    cursor = JSON.parse(JSON.stringify(page.cursor)) as EventCursor;
    if (!page.more && page.events.length === 0) return { events, cursor };
  }
}

async function storeOf(options: Partial<WrittenRun> = {}): Promise<ObjectStore> {
  const store = memoryStore();
  await writeAll(store, recordsOf(options));
  return store;
}

const ids = (events: readonly RunEvent[]): string[] =>
  events.map(({ id }) => id.replace(/\.[0-9a-f]{8}$/, ''));
const alerts = (events: readonly RunEvent[]): AlertRaised[] =>
  events.filter((event) => event.kind === 'alert');

describe('the events of a run', () => {
  it('are what its records tell, in the order of their times', async () => {
    const store = await storeOf({ steps: 5, evalInterval: 2 });
    await writeCheckpoint(store, 'tiny', 2);
    await writeControl(store, 'tiny', 1, { kind: 'pause' }, 3);
    await writeControl(store, 'tiny', 2, { kind: 'setHyperparameters', lr: 0.1 }, 3);
    await writeControl(store, 'tiny', 3, { kind: 'resume' }, 100);
    const { events } = await readAll(store);
    expect(ids(events)).toEqual([
      'started',
      'evaluation.0.final',
      'paused.1',
      'evaluation.2.interval',
      'evaluation.4.interval',
      'evaluation.5.final',
      'resumed.3',
      'checkpoint.2',
    ]);
    expect(events[0]).toMatchObject({
      kind: 'started',
      run: 'tiny',
      cluster: '127.0.0.1:7233, namespace default',
      task: 'crm/eu',
      model: 'small',
      modality: 'tool_use',
      steps: 5,
      who: 'test',
      from: null,
    });
    expect(events[2]).toMatchObject({ resumeWith: 'longhaul resume tiny' });
    expect(events[4]).toMatchObject({
      passAt1: 0.29,
      before: { step: 2, passAt1: 0.27 },
      environments: [{ environment: 'crm/eu', passAt1: 0.29, toolErrorRate: 0.4, graded: 10, unknown: 0 }],
    });
    expect(events.at(-1)).toMatchObject({
      step: 2,
      sizeBytes: 10,
      place: expect.stringContaining('global_step_2/'),
    });
  });

  it('begin with its start, also where another run has evaluated its states before', async () => {
    const store = await storeOf({ steps: 2, evalInterval: 2, evaluatedBy: 'twin', evaluatedAhead: 3600 });
    const { events } = await readAll(store);
    expect(ids(events)).toEqual(['started', 'evaluation.0.final', 'evaluation.2.final']);
  });

  it('are the same for whoever reads once at the end and for whoever looks after each record', async () => {
    const metrics = (step: number) => ({
      'environment/crm/eu/tool_error_rate': [0.1, 0.6, 0.45, 0.55, 0.3, 0.7][step % 6]!,
      'reward/signal_ratio': step > 20 && step < 26 ? 0 : 0.5,
      'ft/restarts/node_lost': step < 30 ? 0 : 1,
    });
    const options: Partial<WrittenRun> = {
      steps: 80,
      evalInterval: 7,
      metrics,
      unapplied: new Map([[17, 'non_finite']]),
      budget: { max_tokens: 2_000 },
    };
    const atOnce = (await readAll(await storeOf(options))).events;
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
    expect(new Set(ids(atOnce)).size).toBe(atOnce.length);
    const byId = (events: RunEvent[]): RunEvent[] => [...events].sort((a, b) => (a.id < b.id ? -1 : 1));
    expect(byId(seen)).toEqual(byId(atOnce));
  });

  it('draw an evaluation with those of its suite before it', async () => {
    const drawn: number[][] = [];
    const chart: EventContext['chart'] = async (evaluations) => {
      drawn.push(evaluations.map(({ step }) => step));
      return null;
    };
    await readAll(await storeOf({ steps: 7, evalInterval: 2 }), newEventCursor, { ...contextAt(0), chart });
    expect(drawn).toEqual([[0], [2], [2, 4], [2, 4, 6], [0, 7]]);
  });

  it('end behind all else, however long it takes to read, and stand still no more then', async () => {
    const ending: RunEnding = { firstRunId: 'r1', how: 'cancelled', at: timeOf(5), reason: null };
    const { events } = await readAll(
      await storeOf({ steps: 80, evalInterval: 7 }),
      newEventCursor,
      contextAt(9e6, ending),
    );
    expect(ids(events).slice(-2)).toEqual(['evaluation.80.final', 'ended.1']);
    expect(alerts(events)).toEqual([]);
  });

  it('compare an evaluation with the one before it of its own suite', async () => {
    const { events } = await readAll(await storeOf({ steps: 6, evalInterval: 2 }));
    const compared = events.flatMap((event) =>
      event.kind === 'evaluation' ? [[event.step, event.before?.step]] : [],
    );
    expect(compared).toEqual([
      [0, undefined],
      [2, undefined],
      [4, 2],
      [6, 0],
    ]);
  });

  it('end with how it ended, once for each start', async () => {
    const store = await storeOf({ steps: 4, prices: [3600, 3600], secondStart: 3 });
    const ending: RunEnding = { firstRunId: 'r2', how: 'failed', at: timeOf(60), reason: 'the data is gone' };
    const { events, cursor } = await readAll(store, newEventCursor, contextAt(100, ending));
    expect(events.at(-1)).toMatchObject({
      kind: 'failed',
      id: 'ended.2',
      step: 4,
      steps: 4,
      passAt1: 0.29,
      seconds: 60,
      spend: '4.94 USD',
      reason: 'the data is gone',
      resumeWith: 'longhaul train --run tiny',
    });
    expect((await readAll(store, cursor, contextAt(200, ending))).events).toEqual([]);
  });

  it('end with each start’s own end, also where the next one drives the run by the time that it is told', async () => {
    const store = await storeOf({ steps: 4, secondStart: 3 });
    const first: RunEnding = { firstRunId: 'r1', how: 'failed', at: timeOf(60), reason: null };
    const { events, cursor } = await readAll(store, newEventCursor, contextAt(100, first));
    expect(events.at(-1)).toMatchObject({ kind: 'failed', id: 'ended.1' });
    const second: RunEnding = { firstRunId: 'r2', how: 'completed', at: timeOf(90), reason: null };
    const later = await readAll(store, cursor, contextAt(200, second));
    expect(later.events).toMatchObject([{ kind: 'completed', id: 'ended.2' }]);
    expect((await readAll(store, later.cursor, contextAt(300, first))).events).toEqual([]);
  });

  it('count what was spent at the price of each step’s own start', async () => {
    // 1.2345 s of the GPU a step: two steps at a dollar a second, and two at two.
    const store = await storeOf({ steps: 4, prices: [3600, 7200], secondStart: 3 });
    const ending: RunEnding = { firstRunId: 'r2', how: 'completed', at: timeOf(60), reason: null };
    const { events } = await readAll(store, newEventCursor, contextAt(100, ending));
    expect(events.at(-1)).toMatchObject({ spend: `${(6 * 1.2345).toFixed(2)} USD` });
  });

  it('tell an evaluation that comes after later steps: while the run goes on, and at its end', async () => {
    const options = { steps: 60, evalInterval: 4 };
    const isLate = ({ step, group }: Written, steps: number[]): boolean =>
      group === 'evaluation' && steps.includes(step);
    const late = [4, 20, 40];
    const store = memoryStore();
    const records = recordsOf(options);
    await writeAll(
      store,
      records.filter((one) => !isLate(one, late)),
    );
    const told = await readAll(store);
    await writeAll(
      store,
      records.filter((one) => isLate(one, [40])),
    );
    const next = await readAll(store, told.cursor);
    expect(ids(next.events)).toEqual(['evaluation.40.interval']);
    expect(next.events[0]).toMatchObject({ before: { step: 36 } });
    expect(next.cursor.evaluations.map(({ step }) => step)).toEqual([
      0, 8, 12, 16, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
    ]);
    await writeAll(
      store,
      records.filter((one) => isLate(one, [4, 20])),
    );
    const ending: RunEnding = { firstRunId: 'r1', how: 'completed', at: timeOf(200), reason: null };
    const last = await readAll(store, next.cursor, contextAt(300, ending));
    expect(ids(last.events)).toEqual(['evaluation.4.interval', 'evaluation.20.interval', 'ended.1']);
    expect((await readAll(store, last.cursor, contextAt(400, ending))).events).toEqual([]);
  });

  it('tell no evaluation again that was told long ago', async () => {
    const store = await storeOf({ steps: 460, evalInterval: 2 });
    const ending: RunEnding = { firstRunId: 'r1', how: 'completed', at: timeOf(2000), reason: null };
    const { events, cursor } = await readAll(store);
    const evaluations = events.filter(({ kind }) => kind === 'evaluation');
    expect(evaluations).toHaveLength(1 + 229 + 1);
    expect(ids((await readAll(store, cursor, contextAt(3000, ending))).events)).toEqual(['ended.1']);
  });

  it('tell the checkpoints behind one whose upload was given up, or whose manifest is damaged, each once', async () => {
    const store = await storeOf({ steps: 5 });
    const { project, model } = recordsOfAllKinds().run.spec;
    const home = { project, model: model.name, run: 'tiny' };
    await store.create(checkpointFileKey(home, 1, 'state.safetensors'), Buffer.from('half of it'));
    await store.create(checkpointManifestKey(home, 2), Buffer.from('{'));
    const told = await readAll(store);
    expect(ids(told.events)).not.toContain('checkpoint.1');
    await writeCheckpoint(store, 'tiny', 3);
    await store.create(checkpointFileKey(home, 4, 'state.safetensors'), Buffer.from('under way'));
    const next = await readAll(store, told.cursor);
    expect(ids(next.events)).toEqual(['checkpoint.3']);
    await writeCheckpoint(store, 'tiny', 4);
    expect(ids((await readAll(store, next.cursor)).events)).toEqual(['checkpoint.4']);
  });

  it('are none before anybody drives the run', async () => {
    const store = memoryStore();
    await writeAll(store, recordsOf().slice(0, 2));
    expect(await readAll(store)).toEqual({ events: [], cursor: newEventCursor });
  });
});

describe('alerts', () => {
  it('about tool errors come when the rate passes a half, by environment, and again only after it fell', async () => {
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

  it('about tool errors come for each environment by itself', async () => {
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
  ])('about unknown outcomes: %i of 100', async (unknown, raised) => {
    const outcomes = [Array.from({ length: 100 }, (_, index) => (index < unknown ? null : 1))];
    const { events } = await readAll(await storeOf({ steps: 1, outcomes }));
    expect(alerts(events).map(({ id }) => id)).toEqual(raised);
  });

  it('about a missing signal come after three steps in a row, and about a skipped update at once', async () => {
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

  it('about unknown outcomes, a lost node and the budget', async () => {
    const { events } = await readAll(
      await storeOf({
        steps: 10,
        metrics: (step) => ({ 'ft/restarts/node_lost': step < 6 ? 0 : 2 }),
        budget: { max_tokens: 400, max_wall_s: 1000 },
        outcomes: [[1, 0, null, 1]],
      }),
    );
    // A quarter of each step's episodes has no outcome; 41 tokens a step.
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

  it('about a missing signal are of reinforcement learning alone', async () => {
    const { events } = await readAll(
      await storeOf({ steps: 6, kind: 'sft', metrics: () => ({ 'reward/signal_ratio': 0 }) }),
    );
    expect(alerts(events)).toEqual([]);
  });

  it('about a budget count hours, dollars and seconds in the unit of their limit', async () => {
    // 1.2345 s of the GPU and 100 s of time a step.
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

  it('about the budget judge a step by what its own start was given, whoever reads it and when', async () => {
    // 82 tokens a step: the first start may spend 500, and the second as many again.
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

  it('about the budget know a start that comes while they are read', async () => {
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

  it('about a lost node name the one that committed the step before', () => {
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
      detail: 'the run goes on at node-b@host pid 8',
    });
  });

  it('about a standstill come after ten minutes at the earliest', () => {
    const watch = { ...nothingWatched, committedAt: timeOf(0), stepSeconds: [2, 2, 2] };
    expect(stalledSince(watch, 3, timeOf(599))).toBe(null);
    expect(stalledSince(watch, 3, timeOf(600))).toMatchObject({ alert: { seconds: 600, usualSeconds: 2 } });
  });

  it('about a standstill come once behind a step, not while the run is paused and not for its pause', async () => {
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
    // The second start comes a day later, and has committed nothing yet.
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

  it('say nothing of a standstill before they know what is usual', () => {
    expect(
      stalledSince({ ...nothingWatched, committedAt: timeOf(0), stepSeconds: [1, 1] }, 2, timeOf(1e6)),
    ).toBe(null);
  });
});
