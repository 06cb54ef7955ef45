// Tests which evaluations belong to a run, and how far the run has come.
import { beforeEach, describe, expect, test } from 'vitest';
import { metricsOfServed } from '../../src/rl/spending.js';
import { budgetIsSpent, budgetTable } from '../../src/report/budget.js';
import { readEvaluations } from '../../src/report/history/evaluations.js';
import { hasEnded, inWords, positionOf } from '../../src/report/run-position.js';
import { readHistory } from '../../src/report/history/run-history.js';
import type { ControlChange } from '../../src/spec/records/control-records.js';
import type { BudgetSpec } from '../../src/spec/run-spec.js';
import { runEvaluationKey } from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { recordsOfAllKinds } from '../store/fixtures.js';
import { addEvaluation, recordedRun, steps, targetPassRate, until } from './recorded-run.js';

let store: ObjectStore;
const openRecords = async (): Promise<void> => {
  store = await recordedRun();
};

const evaluated = async (): Promise<string[]> =>
  (await readHistory(store, 'tiny')).evaluations.map(
    ({ step, result }) => `${step} ${result.suite_name} by ${result.observed.run}`,
  );
const own = ['2 final by tiny', '22 interval by tiny', '42 final by tiny'];

describe('evaluations of a state may come from any run that had the state', () => {
  beforeEach(openRecords);

  test('a run shows the evaluations that it played itself, also after it was stopped and resumed', async () => {
    await addEvaluation(store, { step: 30, name: 'final' });
    expect(await evaluated()).toEqual([own[0], own[1], '30 final by tiny', own[2]]);
  });

  test('a run has results of other runs that it names, and no others', async () => {
    await addEvaluation(store, { step: 0, name: 'interval', by: 'other' });
    await addEvaluation(store, { step: 1, name: 'final', by: 'other' });
    await store.delete(runEvaluationKey('tiny', 1, 'final'));
    expect(await evaluated()).toEqual(['0 interval by other', ...own]);
  });
});

describe('a run', () => {
  beforeEach(openRecords);

  /** The run's position if only its first `step` steps were committed and `changes` were accepted. */
  const at = async (step: number, ...changes: ControlChange[]): Promise<string> => {
    const history = await readHistory(store, 'tiny');
    const control = changes.map((change, index) => ({
      ...recordsOfAllKinds().control,
      n: index + 1,
      change,
    }));
    const position = positionOf({ ...until(history, step), control });
    return `${inWords(position)}${hasEnded(position) ? ' (ended)' : ''}`;
  };

  test('is unfinished until the state of its last step is evaluated', async () => {
    expect(await at(20)).toBe(`unfinished: step 20 of at most ${steps}`);
    expect(await at(2)).toBe(`unfinished: step 2 of at most ${steps}`);
    expect(await at(steps)).toBe(`completed at step ${steps} (ended)`);
  });

  test('is paused or stopped if a person requested that', async () => {
    expect(await at(20, { kind: 'pause' })).toBe(`paused: step 20 of at most ${steps}`);
    expect(await at(20, { kind: 'pause' }, { kind: 'resume' })).toMatch(/^unfinished/);
    expect(await at(20, { kind: 'stopAfter', step: 20 })).toMatch(/^unfinished/);
    await addEvaluation(store, { step: 20, name: 'final' });
    expect(await at(20, { kind: 'stopAfter', step: 20 })).toBe('stopped at step 20 (ended)');
    expect(await at(25, { kind: 'stopAfter', step: 20 })).toMatch(/^unfinished/);
  });

  test('is stopped when a budget is spent, and the report names limits that are nearly spent', async () => {
    await addEvaluation(store, { step: 20, name: 'final', by: 'other' });
    const spent = async (budget: BudgetSpec) => {
      const history = until(await readHistory(store, 'tiny'), 20);
      const { owner } = recordsOfAllKinds();
      const owners = [{ ...owner, observed: { ...owner.observed, budget } }];
      const evaluations = await readEvaluations(store, 'tiny');
      const limited = { ...history, owners, evaluations };
      return { position: inWords(positionOf(limited)), table: budgetTable(limited) };
    };
    const history = until(await readHistory(store, 'tiny'), 20);
    expect(budgetTable(history)).toBeNull();
    const newest = history.updates.at(-1)?.observed.committed_at ?? '';
    const seconds = (Date.parse(newest) - Date.parse(history.record.observed.started_at)) / 1000;
    expect((await spent({ max_wall_s: 2 * seconds })).position).toMatch(/^unfinished/);
    expect((await spent({ max_wall_s: 2 * seconds })).table).not.toContain('strong');
    expect((await spent({ max_wall_s: seconds / 0.9 })).table).toContain('is nearly spent');
    expect(await spent({ max_wall_s: seconds })).toEqual({
      position: 'stopped at step 20',
      table: expect.stringContaining('<strong><code>max_wall_s</code> is spent.') as string,
    });
  });

  test('is stopped where what was sent to a server has cost max_usd, and the report says what it was', async () => {
    const { updates, ...history } = until(await readHistory(store, 'tiny'), 20);
    const sent = metricsOfServed({ train: 40_000, prefill: 90_000, sample: 1_234, saves: 2 });
    const withSent = updates.map((update) => {
      const { observed } = update;
      return { ...update, observed: { ...observed, metrics: { ...observed.metrics, ...sent } } };
    });
    const { owner } = recordsOfAllKinds();
    const spent = (budget?: BudgetSpec) => {
      const owners = [{ ...owner, observed: { ...owner.observed, ...(budget ? { budget } : {}) } }];
      const limited = { ...history, updates: withSent, owners };
      return { spent: budgetIsSpent(limited), table: budgetTable(limited) ?? '' };
    };
    expect(spent().table).toContain('800,000');
    expect(spent().table).not.toContain('max_usd');
    const usd_per_million = { train: 2, prefill: 0.5, sample: 10 };
    // 20 steps: 1.6 + 0.9 + 0.2468 USD.
    expect(spent({ max_usd: 2.75, usd_per_million }).spent).toBe(false);
    const { spent: isSpent, table } = spent({ max_usd: 2.74, usd_per_million });
    expect(isSpent).toBe(true);
    expect(table).toContain('<strong><code>max_usd</code> is spent.');
    const cells = table.replaceAll(/<[^>]+>/g, ' ').replaceAll(/ +/g, ' ');
    for (const row of [
      'train tokens 800,000 1.6',
      'prefill tokens 1,800,000 0.9',
      'sample tokens 24,680 0.2468',
      'saves 40 –',
    ])
      expect(cells).toContain(row);
  });

  test('is complete when the target was reached', async () => {
    await addEvaluation(store, { step: 22, name: 'interval', tasks: 84, pass_at_1: targetPassRate });
    expect(await at(22)).toMatch(/^unfinished/);
    await addEvaluation(store, { step: 22, name: 'final', by: 'other' });
    expect(await at(22)).toBe(
      'ended at step 22: the interval evaluation reached 90 %; final evaluation 62.5 % (200) (ended)',
    );
  });
});
