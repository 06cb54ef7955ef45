import { describe, expect, test } from 'vitest';
import type { RunOutline } from '../../src/activities/contracts.js';
import { phasesOf } from '../../src/activities/run/step-settings.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { plannedSteps, suiteDue } from '../../src/spec/schedule.js';
import { suiteAfter, type SuiteSteps } from '../../src/spec/suite-due.js';
import { suiteDue as suiteDueOfWorkflow, totalSteps } from '../../src/workflows/run/step-schedule.js';

describe('a run plays', () => {
  const all = (steps: SuiteSteps): Record<number, string> =>
    Object.fromEntries(
      Array.from({ length: steps.total + 1 }, (_, step) => [step, suiteAfter(step, steps)]).filter(
        ([, suite]) => suite !== null,
      ) as [number, string][],
    );
  test.each<[string, SuiteSteps, Record<number, string>]>([
    [
      'the interval suite before the warm start, the final suite before GRPO, and the interval suite after every fourth GRPO step except the last',
      { warmStart: 3, total: 15, evalInterval: 4 },
      { 0: 'interval', 3: 'final', 7: 'interval', 11: 'interval' },
    ],
    [
      'the final suite first, if it has no warm start',
      { warmStart: 0, total: 5, evalInterval: 3 },
      { 0: 'final', 3: 'interval' },
    ],
    [
      'only the interval suite, before the warm start, if no GRPO follows',
      { warmStart: 4, total: 4, evalInterval: 2 },
      { 0: 'interval' },
    ],
    [
      'no suite during GRPO if the interval is 0',
      { warmStart: 2, total: 9, evalInterval: 0 },
      { 0: 'interval', 2: 'final' },
    ],
    ['nothing, if it has no steps', { warmStart: 0, total: 0, evalInterval: 1 }, {}],
  ])('%s', (_, steps, suites) => expect(all(steps)).toEqual(suites));
});

describe('readers of a run’s records expect the same suites as its workflow plays', () => {
  const phase = (updates: number) => ({ name: 'p', updates, mini_batches_per_step: 3 });
  test.each([
    ['warm start and GRPO', [phase(7), phase(2)], 12, 4],
    ['only GRPO', [], 9, 3],
    ['an empty phase', [phase(0)], 5, 2],
    ['only a warm start', [phase(9)], 0, 2],
    ['no interval', [phase(4)], 6, 0],
  ])('%s', (_, warm_start, max_training_steps, eval_interval) => {
    const spec = { warm_start, trainer: { max_training_steps, eval_interval } } as unknown as RunSpec;
    const outline = { phases: phasesOf(spec), eval_interval } as RunOutline;
    const { total } = plannedSteps(spec);
    expect(total).toBe(totalSteps(outline));
    for (let step = 0; step <= total; step++)
      expect([step, suiteDue(spec, step)]).toEqual([step, suiteDueOfWorkflow(outline, step)]);
  });
});
