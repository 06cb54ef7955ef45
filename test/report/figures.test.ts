import { beforeAll, describe, expect, test } from 'vitest';
import { ticks } from '../../src/report/charts/svg.js';
import { lineChart, smoothed } from '../../src/report/charts/chart.js';
import { clearest } from '../../src/report/charts/chart-label.js';
import { readChanges } from '../../src/report/history/changes.js';
import { environmentRows, templateRows } from '../../src/report/environment-table.js';
import { timeSpan } from '../../src/report/format.js';
import { beforeAndAfter, readHistory, type RunHistory } from '../../src/report/history/run-history.js';
import { trends } from '../../src/report/charts/trends.js';
import type { UpdateRecord } from '../../src/spec/records/update.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { faultNote } from '../../src/workflows/status/fault-note.js';
import { recordedRun, steps, until, workerDiedAt } from './recorded-run.js';

let store: ObjectStore;
let history: RunHistory;
beforeAll(async () => {
  store = await recordedRun();
  history = await readHistory(store, 'tiny');
});

describe('a run is compared with the state where GRPO began', () => {
  test('on the same suite if it was played again', () => {
    const change = beforeAndAfter(history);
    expect(change).toMatchObject({ before: { step: 2 }, after: { step: 42 }, sameTasks: true });
  });

  test('on a smaller suite while the run continues, and the report says so', () => {
    expect(beforeAndAfter(until(history, 30))).toMatchObject({
      before: { step: 2 },
      after: { step: 22, result: { suite_name: 'interval' } },
      sameTasks: false,
    });
  });

  test('on the newest state after a stop and restart, although an older state has the full suite', () => {
    const { evaluations } = history;
    const interval = evaluations.find(({ result }) => result.suite_name === 'interval')!;
    const resumed = { ...history, evaluations: [...evaluations, { ...interval, step: 62 }] };
    expect(beforeAndAfter(resumed)).toMatchObject({
      before: { step: 2 },
      after: { step: 62, result: { suite_name: 'interval' } },
      sameTasks: false,
    });
  });

  test('but not before the first evaluation under GRPO', () => {
    expect(beforeAndAfter(until(history, 10))).toBeNull();
    expect(beforeAndAfter(until(history, 2))).toBeNull();
  });
});

describe('the table of environments', () => {
  test('has baseline, final, change, standard error and tool errors, and a row for all environments', () => {
    const change = beforeAndAfter(history);
    if (!change) throw new Error('no comparison');
    const rows = environmentRows(change.before, change.after);
    expect(rows.map((row) => row.env_key)).toEqual(['booking', 'tracker', 'all']);
    const [booking, tracker, all] = rows;
    expect(booking).toMatchObject({
      before: 0.5,
      after: 0.5,
      delta: 0,
      regime: 'too few episodes',
      unknown: 0,
    });
    expect(tracker).toMatchObject({ before: 0.25, after: 0.75, delta: 0.5, regime: 'improving', unknown: 5 });
    // sqrt(0.75 · 0.25 / 100); 10 errors in 105 calls, because unknown episodes called tools too.
    expect(tracker?.error).toBeCloseTo(0.0433, 4);
    expect(tracker?.tool_error_rate).toBeCloseTo(10 / 105, 6);
    expect(all).toMatchObject({ graded: 200, before: 0.375, after: 0.625, delta: 0.25, unknown: 5 });
    expect(all?.tool_error_rate).toBeCloseTo(20 / 205, 6);
  });

  test('lists the weakest templates first', () => {
    const change = beforeAndAfter(history);
    if (!change) throw new Error('no comparison');
    const rows = templateRows(change.before, change.after);
    expect(rows.map((row) => [row.template, row.after])).toEqual([
      ['book', 0.5],
      ['find', 0.75],
    ]);
  });
});

test('a step’s duration does not include the time for which a person paused the run', () => {
  const [first, second] = history.updates.filter(({ identity }) => identity.kind === 'grpo') as [
    UpdateRecord,
    UpdateRecord,
  ];
  const withFigures = (update: UpdateRecord, ms: number, paused: number): UpdateRecord => ({
    ...update,
    observed: {
      ...update.observed,
      timings_ms: { ...update.observed.timings_ms, step: ms },
      metrics: { ...update.observed.metrics, 'ft/paused_seconds': paused },
    },
  });
  const html = trends([withFigures(first, 2_000, 10), withFigures(second, 503_000, 510)]);
  expect(html).toContain('Seconds per step: 2 first, 3 last, 3 at most');
});

test.each([
  [{}, null],
  [{ 'ft/lost_seconds': 1.2, 'ft/ettr': 0.9 }, null],
  [
    { 'ft/waiting_seconds': 3, 'ft/ettr': 0.9 },
    'waited 3.0 s for environments, the store or nodes · ETTR 90.0 %',
  ],
  [{ 'ft/restarts/engine_exit': 2, 'ft/lost_seconds': 1.2 }, 'survived engine exit ×2 · lost 1.2 s'],
  [
    { 'ft/restarts/store': 1, 'ft/lost_seconds': 1.2, 'ft/lost_tokens': 1_500, 'ft/waiting_seconds': 110.6 },
    'survived store · lost 1.2 s and 1,500 tokens · waited 110.6 s for environments, the store or nodes',
  ],
])('the line about faults reports only faults and waits: %o', (figures, line) => {
  expect(faultNote(figures as Record<string, number>)).toBe(line);
});

test('a change is shown with the first step whose plan includes it', async () => {
  expect(await readChanges(store, history)).toEqual([
    expect.objectContaining({ n: 1, what: 'lr = 0.01', step: workerDiedAt }),
  ]);
  expect(await readChanges(store, until(history, workerDiedAt - 1))).toMatchObject([{ step: null }]);
  expect(history.updates).toHaveLength(steps);
});

describe('charts', () => {
  test('are smoothed without losing points or moving a straight line', () => {
    const line = Array.from({ length: 20 }, (_, x) => ({ x, y: 3 }));
    expect(smoothed(line, 5)).toEqual(line);
    const spike = [0, 0, 3, 0, 0].map((y, x) => ({ x, y }));
    expect(smoothed(spike, 3).map((point) => point.y)).toEqual([0, 1, 1, 1, 0]);
  });

  test('write the value of a dot where no line runs, and always inside the chart', () => {
    const plot = { left: 0, right: 300, top: 0, bottom: 200 };
    const rising = { weight: 1, points: [0, 100, 200].map((x) => ({ x, y: 200 - x })) };
    const offSlope = clearest({ x: 100, y: 100 }, '50 %', plot, [rising]);
    expect(offSlope).toMatchObject({ anchor: 'end', y: 89 });
    const flat = { weight: 1, points: [0, 300].map((x) => ({ x, y: 104 })) };
    const atEdge = clearest({ x: 290, y: 100 }, '50 %', plot, [flat]);
    expect(atEdge).toMatchObject({ anchor: 'end', y: 89 });
    expect(clearest({ x: 100, y: 199 }, '0 %', plot, []).y).toBeLessThan(199);
  });

  test('draw no line across steps that were not measured', () => {
    const points = [0, 50, 100].map((x) => ({ x, y: 0.5 }));
    const chart = lineChart({
      description: '',
      size: { width: 900, height: 320 },
      yRange: [0, 1],
      yFormat: String,
      series: [{ name: 'one', style: 'interval', draw: 'dots', points, joinedFrom: 24 }],
      bands: [],
      legend: false,
    });
    expect(chart.match(/<circle/g)).toHaveLength(3);
    expect(/points="([^"]*)"/.exec(chart)?.[1]?.split(' ')).toHaveLength(2);
  });

  test('have round ticks', () => {
    expect(ticks(0, 1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticks(0, 237, 9)).toEqual([0, 50, 100, 150, 200]);
  });

  test('show time spans, but never “60 s” or “60 min”', () => {
    expect([59.7, 119.6, 3599.7, 90_000, 200_000].map(timeSpan)).toEqual([
      '1 min 0 s',
      '2 min 0 s',
      '1 h 0 min',
      '25 h 0 min',
      '2 d 8 h',
    ]);
  });
});
