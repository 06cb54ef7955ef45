// The report says that rewards of steps may stay below pass@1 only of a run whose curriculum prefers some tasks.
import { beforeAll, describe, expect, test } from 'vitest';
import { faultsOf, readAttempts } from '../../src/report/history/faults.js';
import { readChanges } from '../../src/report/history/changes.js';
import { readHistory } from '../../src/report/history/run-history.js';
import { renderReport } from '../../src/report/html-report.js';
import type { TrainerSpec } from '../../src/spec/run-spec.js';
import { readEpisodes } from './recorded-episodes.js';
import { recordedRun } from './recorded-run.js';

let page: (trainer: Partial<TrainerSpec>) => string;
beforeAll(async () => {
  const store = await recordedRun();
  const history = await readHistory(store, 'tiny');
  const input = {
    ...{
      faults: faultsOf(history, await readAttempts(store, history)),
      changes: await readChanges(store, history),
    },
    episodes: await readEpisodes(store, history),
  };
  page = (trainer) => {
    const { record } = history;
    const spec = { ...record.spec, trainer: { ...record.spec.trainer, ...trainer } };
    return renderReport({ ...input, history: { ...history, record: { ...record, spec } } });
  };
});

describe('the note below the learning curve', () => {
  const usual = { by: 'template', floor: 0.02 } as const;

  test.each<[string, Partial<TrainerSpec>]>([
    ['all tasks are equally likely', { curriculum_floor: 0 }],
    ['a spec of an earlier version has no such setting', {}],
    ['the weights are the numbers of tasks', { curriculum_floor: 0, curriculum: { ...usual, floor: 0 } }],
    [
      'waves add groups, because all groups count in the reward',
      {
        curriculum_floor: 0,
        dynamic_sampling: { type: 'filter', max_sample_batches: 3 },
      },
    ],
    ['environments only take turns', { curriculum_floor: 0, balance: 'env' }],
  ])('names no preference if %s', (_, trainer) => {
    expect(page(trainer)).not.toMatch(/curriculum prefers|stay below pass@1/);
  });

  test.each<[string, Partial<TrainerSpec>]>([
    ['tasks that', { curriculum_floor: 0.05 }],
    ['tasks that', { curriculum_floor: 0, curriculum: usual }],
    ['environments whose tasks', { curriculum_floor: 0, curriculum: { ...usual, by: 'env' } }],
  ])('says that the curriculum prefers %s the policy sometimes solves', (preferred, trainer) => {
    expect(page(trainer)).toMatch(
      new RegExp(
        `<p class="quiet">[^<]*The curriculum prefers ${preferred} the policy sometimes solves, [^<]*</p>`,
      ),
    );
  });
});
