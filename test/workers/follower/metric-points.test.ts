// A run's series of points: the same records give the same series to any reader, at any time, even if it is killed again and again.
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MetricPoints } from '../../../src/workers/follower/metric-points.js';
import { evaluationPoint, type RunningTotals } from '../../../src/workers/follower/step-values.js';
import { Delivered, type MetricPoint, stepOfId } from '../../../src/integrations/tracking/metric-point.js';
import type { EvaluationResult } from '../../../src/spec/records/evaluation-records.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { updateKey } from '../../../src/store/record-keys.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { until } from '../../support/until.js';
import { memoryStore } from './memory-store.js';
import { recordsOf, timeOf, writeAll, type Written, writeControl, type WrittenRun } from './written-run.js';

async function storeOf(options: Partial<WrittenRun> = {}): Promise<ObjectStore> {
  const store = memoryStore();
  await writeAll(store, recordsOf(options));
  return store;
}

/** Reads like a follower, to the end of a run that is over. */
async function readAll(
  store: ObjectStore,
  run = 'tiny',
  delivered = new Delivered(),
): Promise<MetricPoint[]> {
  const reader = new MetricPoints(store, run);
  const points: MetricPoint[] = [];
  for (;;) {
    const next = await reader.next(delivered);
    const page = next.length > 0 ? next : await reader.missed(delivered);
    if (page.length === 0) return points;
    for (const point of page) delivered.add(point.id);
    points.push(...page);
  }
}

const ids = (points: readonly MetricPoint[]): string[] =>
  points.map(({ id }) => id.replace(/\.[0-9a-f]{8}$/, ''));

describe('a run as points', () => {
  it('has one point for each step, in order, and one for each evaluation, before the next step', async () => {
    const points = await readAll(await storeOf({ steps: 5, evalInterval: 2 }));
    expect(ids(points)).toEqual([
      'eval.0.final',
      'step.1',
      'step.2',
      'eval.2.interval',
      'step.3',
      'step.4',
      'eval.4.interval',
      'step.5',
      'eval.5.final',
    ]);
  });

  it('keeps the names of an update’s figures: timings in seconds, faults, costs and the share without an outcome', async () => {
    const points = await readAll(await storeOf({ steps: 2, lostNodes: [2], prices: [36, 36] }));
    const [, , second] = points;
    expect(second).toMatchObject({ id: 'step.2', step: 2, at: timeOf(4) });
    expect(second?.values).toMatchObject({
      'trainer/global_step': 2,
      'trainer/applied': 1,
      'reward/avg_raw_reward': 0.04,
      'reward/unknown_ratio': 0.125,
      'ft/lost_seconds': 9,
      'ft/restarts/node_lost': 1,
      'timing/step': 2,
      'timing/in_flight': 1.2345,
      'cost/tokens': 164,
      'cost/gpu_hours': (2 * 1.2345) / 3600,
    });
    expect(second?.values['cost/usd']).toBeCloseTo(2 * 0.012345, 9);
  });

  it('has the faults’ cost up to each step, even for a reader that starts in the middle', async () => {
    const store = await storeOf({ steps: 70, stepSeconds: 100, lostNodes: [2, 40], evalInterval: 100 });
    const points = new Map((await readAll(store)).map(({ id, values }) => [id, values]));
    expect(points.get('step.1')).toMatchObject({ 'ft/ettr': 1, 'ft/wall_seconds': 100 });
    expect(points.get('step.2')).toMatchObject({ 'ft/lost_seconds': 9, 'ft/ettr': 0.955 });
    const last = { 'ft/restarts/node_lost': 2, 'ft/lost_seconds': 18, 'ft/wall_seconds': 7_000 };
    expect(points.get('step.70')).toMatchObject(last);
    const [behind] = await new MetricPoints(store, 'tiny').next(new Delivered(60));
    expect(behind?.values).toEqual(points.get('step.61'));
  });

  it('has an interval evaluation under SkyRL’s names, and any other evaluation under its suite’s name', async () => {
    const points = await readAll(await storeOf({ steps: 5, evalInterval: 2 }));
    expect(points.find(({ id }) => id.startsWith('eval.2.'))?.values).toMatchObject({
      'eval/all/pass_at_1': 0.27,
      'eval/crm/eu/pass_at_1': 0.27,
      'eval/crm/eu/mean_turns': 2,
      'timing/eval': 3,
    });
    expect(points.at(-1)?.values).toMatchObject({
      'eval/final/all/pass_at_1': 0.3,
      'eval/final/crm/eu/tool_errors': 4,
      'timing/eval/final': 3,
    });
  });

  it('has pass@k and pass@n of an evaluation with several samples a task', () => {
    const { evaluation } = recordsOfAllKinds();
    const rates = { pass_at_k: { 2: 0.5, 3: 0.75 }, pass_at_n: 1 };
    const figures = Object.values(evaluation.environments)[0]!;
    const result: EvaluationResult = {
      ...evaluation,
      ...{ schema: 'longhaul.evaluation/3', samples_per_task: 3, suite_name: 'final', ...rates },
      environments: { 'crm/eu': { ...figures, ...rates } },
    };
    const { values } = evaluationPoint(5, result);
    for (const scope of ['all', 'crm/eu'])
      expect(values).toMatchObject({
        [`eval/final/${scope}/pass_at_1`]: evaluation.pass_at_1,
        [`eval/final/${scope}/pass_at_2`]: 0.5,
        [`eval/final/${scope}/pass_at_3`]: 0.75,
        [`eval/final/${scope}/pass_at_n`]: 1,
      });
    expect(Object.values(values).every(Number.isFinite)).toBe(true);
  });

  it('has no pass rate of an evaluation without grades, but counts its outcomes', async () => {
    const points = await readAll(await storeOf({ steps: 5, evalInterval: 2, gradesNothing: true }));
    const evaluations = points.filter(({ id }) => id.startsWith('eval.'));
    expect(evaluations).toHaveLength(4);
    for (const { values } of evaluations)
      expect(Object.keys(values).filter((name) => name.endsWith('pass_at_1'))).toEqual([]);
    expect(points.at(-1)?.values).toMatchObject({ 'eval/final/all/graded': 0, 'eval/final/all/unknown': 10 });
  });

  it('has a point for a step that applied nothing, and only one evaluation of the state that this step did not change', async () => {
    const points = await readAll(
      await storeOf({
        steps: 5,
        evalInterval: 2,
        unapplied: new Map([
          [3, 'no_signal'],
          [5, 'non_finite'],
        ]),
      }),
    );
    expect(ids(points)).toEqual([
      'eval.0.final',
      'step.1',
      'step.2',
      'eval.2.interval',
      'step.3',
      'step.4',
      'eval.4.interval',
      'step.5',
      'eval.5.final',
    ]);
    expect(
      points.filter(({ id }) => id.startsWith('step')).map(({ values }) => values['trainer/applied']),
    ).toEqual([1, 1, 0, 1, 0]);
  });

  it('prices each step by the start that planned it', async () => {
    const points = await readAll(await storeOf({ steps: 4, prices: [0, 3600], secondStart: 3 }));
    const usd = points.filter(({ id }) => stepOfId(id) !== null).map(({ values }) => values['cost/usd'] ?? 0);
    expect(usd[1]).toBe(0);
    expect(usd[2]).toBeCloseTo(1.2345, 9);
    expect(usd[3]).toBeCloseTo(2.469, 9);
  });

  it('begins, for a fork, after the step at which it left its parent', async () => {
    const store = await storeOf({ steps: 6, evalInterval: 3 });
    const lineage = { run: 'tiny', step: 3, state: '3'.padStart(64, '0') };
    await writeAll(store, recordsOf({ run: 'tiny~2', steps: 8, evalInterval: 4, lineage }));
    const points = await readAll(store, 'tiny~2');
    expect(ids(points)).toEqual([
      'step.4',
      'eval.4.interval',
      'step.5',
      'step.6',
      'step.7',
      'step.8',
      'eval.8.final',
    ]);
    expect(points[0]?.values['cost/tokens']).toBe(82);
  });

  it('has evaluations that another run of the same states played, if this run names them', async () => {
    const points = await readAll(await storeOf({ steps: 5, evalInterval: 2, evaluatedBy: 'twin' }));
    expect(ids(points).filter((id) => id.startsWith('eval'))).toEqual([
      'eval.0.final',
      'eval.2.interval',
      'eval.4.interval',
      'eval.5.final',
    ]);
    const other = await storeOf({ run: 'other', steps: 5, evalInterval: 2 });
    await writeAll(other, recordsOf({ run: 'tiny', steps: 5, evalInterval: 5 }));
    expect(ids(await readAll(other)).filter((id) => id.startsWith('eval'))).toEqual([
      'eval.0.final',
      'eval.5.final',
    ]);
  });

  it('has, for a fork, no evaluations of the state at the fork: they belong to the parent', async () => {
    const store = await storeOf({ steps: 6, evalInterval: 3 });
    const lineage = { run: 'tiny', step: 3, state: '3'.padStart(64, '0') };
    await writeAll(
      store,
      recordsOf({
        run: 'tiny~2',
        steps: 8,
        evalInterval: 3,
        lineage,
        unapplied: new Map([[4, 'no_signal']]),
      }),
    );
    expect(ids(await readAll(store, 'tiny~2')).filter((id) => id.startsWith('eval'))).toEqual([
      'eval.6.interval',
      'eval.8.final',
    ]);
  });

  it('does not read delivered evaluations again', async () => {
    const store = memoryStore();
    await writeAll(store, recordsOf({ steps: 12, evalInterval: 2, unapplied: new Map([[7, 'no_signal']]) }));
    const delivered = new Delivered();
    await readAll(store, 'tiny', delivered);
    const read: string[] = [];
    const { get } = store;
    store.get = (key) => (read.push(key), get(key));
    expect(await new MetricPoints(store, 'tiny').missed(delivered)).toEqual([]);
    expect(read.filter((key) => key.startsWith('evals/'))).toEqual([]);
    expect(read.length).toBeGreaterThan(12);
  });

  it('has no step after a step that was missing when the reader looked', async () => {
    const records = recordsOf({ steps: 12 });
    const store = memoryStore();
    const written = records.findIndex(({ key }) => key === updateKey('tiny', 3)) + 1;
    await writeAll(store, records.splice(0, written));
    // The run continues between the read of step 4 and the reads of later steps.
    const { get } = store;
    let goesOn: Promise<void> | undefined;
    store.get = async (key) => {
      const found = await get(key);
      if (key === updateKey('tiny', 4)) await (goesOn ??= writeAll(store, records));
      if (!(Number(/([0-9]+)\/update\.json$/.exec(key)?.[1]) > 4)) return found;
      await until(() => goesOn !== undefined, 'the look at step 4');
      await goesOn;
      return get(key);
    };
    const page = await new MetricPoints(store, 'tiny').next(new Delivered());
    expect(page.map(({ id }) => stepOfId(id)).filter((step) => step !== null)).toEqual([1, 2, 3]);
  });

  it('continues past an unreadable evaluation, and has it once it was quarantined and played again', async () => {
    const records = recordsOf({ steps: 5, evalInterval: 2 });
    const store = memoryStore();
    const damaged = records.find(({ step, key }) => step === 2 && key.endsWith('result.json'))!;
    await store.create(damaged.key, Buffer.from('{'));
    await writeAll(store, records);
    expect(ids(await readAll(store))).not.toContain('eval.2.interval');
    await writeControl(store, 'tiny', 1, { kind: 'quarantine', key: damaged.key }, 5);
    const again = memoryStore();
    await damaged.write(again);
    await store.create(`${damaged.key}.r1`, (await again.get(damaged.key))!);
    expect(ids(await readAll(store))).toContain('eval.2.interval');
  });

  it('adds nothing twice if an abandoned read still runs beside the next one', async () => {
    const store = memoryStore();
    await writeAll(store, recordsOf({ steps: 80, evalInterval: 50 }));
    const reader = new MetricPoints(store, 'tiny');
    const delivered = new Delivered(70);
    // Each of the reads is held at another place.
    let reads = 0;
    store.beforeRead = async () => {
      if (++reads % 7 === 0) await delay(5);
    };
    const pages = await Promise.all(Array.from({ length: 6 }, () => reader.next(delivered)));
    for (const point of [...pages.flat(), ...(await reader.next(delivered))])
      if (stepOfId(point.id) !== null) expect(point.values['cost/tokens']).toBe(82 * point.step);
  });

  it('is read in pages: a read of a long run without news is short', async () => {
    const store = memoryStore();
    await writeAll(store, recordsOf({ steps: 200, evalInterval: 50 }));
    const reader = new MetricPoints(store, 'tiny');
    const delivered = new Delivered();
    for (let page; (page = await reader.next(delivered)).length > 0;) {
      expect(page.length).toBeLessThan(40);
      for (const { id } of page) delivered.add(id);
    }
    const before = store.reads;
    await reader.next(delivered);
    expect(store.reads - before).toBeLessThan(10);
  });
});

describe('the points of a run in progress', () => {
  const runs = fc.record({
    steps: fc.integer({ min: 1, max: 40 }),
    evalInterval: fc.integer({ min: 1, max: 9 }),
    unapplied: fc
      .array(fc.integer({ min: 1, max: 40 }), { maxLength: 6 })
      .map((steps) => new Map(steps.map((step) => [step, 'no_signal'] as const))),
    secondStart: fc.integer({ min: 1, max: 50 }),
    prices: fc.constantFrom<[number, number]>([0, 0], [1, 1], [0.7, 2.3]),
    evaluatedBy: fc.constantFrom('tiny', 'twin'),
  });

  it('are final, unique and the same, whatever arrives late, and however often a reader dies and starts again', async () => {
    await fc.assert(
      fc.asyncProperty(runs, fc.infiniteStream(fc.nat(999)), async (options, chance) => {
        const roll = (): number => (chance.next().value as number) / 1000;
        const records = recordsOf(options);
        const expected = await readAll(await storeOf(options));
        const store = memoryStore();
        const waiting = arrivals(records, options.unapplied, roll);
        const seen = new Map<string, MetricPoint>();
        let delivered = new Delivered();
        let totals: RunningTotals | null = null;
        let reader = new MetricPoints(store, 'tiny');
        for (const record of waiting) {
          await record.write(store);
          if (roll() < 0.5 || !(await store.head('runs/tiny/run.json'))) continue;
          const page = await (roll() < 0.15 ? reader.overdue(delivered) : reader.next(delivered));
          // The reader is killed before it has delivered the last points of a page.
          const handed = page.slice(0, roll() < 0.3 ? Math.floor(roll() * page.length) : page.length);
          for (const point of handed) {
            expect(seen.has(point.id)).toBe(false);
            seen.set(point.id, point);
            delivered.add(point.id);
          }
          totals = reader.totalsAfter(delivered) ?? totals;
          if (handed.length < page.length || roll() < 0.1) {
            // It starts again from what the tracker holds; noted totals may be lost.
            delivered = new Delivered(delivered.step, delivered.evaluations);
            reader = new MetricPoints(store, 'tiny', roll() < 0.5 ? totals : null);
          }
        }
        for (const point of await readAll(store, 'tiny', delivered)) {
          expect(seen.has(point.id)).toBe(false);
          seen.set(point.id, point);
        }
        expect([...seen.keys()].sort()).toEqual(expected.map(({ id }) => id).sort());
        for (const point of expected) expect(seen.get(point.id)).toEqual(point);
        const order = [...seen.keys()].map(stepOfId).filter((step) => step !== null);
        expect(order).toEqual([...order].sort((a, b) => a - b));
        for (const [index, { id, step }] of [...seen.values()].entries())
          if (stepOfId(id) === null && step > 0)
            expect([...seen.keys()].indexOf(`step.${step}`)).toBeLessThan(index);
      }),
      { numRuns: 60 },
    );
  });
});

/** Steps in order; evaluations after their step, some of them much later. */
function arrivals(
  records: readonly Written[],
  unapplied: ReadonlyMap<number, unknown>,
  roll: () => number,
): Written[] {
  /** When the last evaluation of a state arrives, by the step that made the state. A later one of the same state never comes before it. */
  const last = new Map<number, number>();
  const placed = records.map((record, index) => {
    if (record.group !== 'evaluation') return { record, at: index };
    let state = record.step;
    while (unapplied.has(state)) state -= 1;
    const at = Math.max(index + (roll() < 0.3 ? roll() * records.length : 0), last.get(state) ?? 0);
    last.set(state, at);
    return { record, at };
  });
  return placed.sort((a, b) => a.at - b.at).map(({ record }) => record);
}
