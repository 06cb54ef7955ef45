import { describe, expect, test } from 'vitest';
import type { RunOutline } from '../../src/activities/contracts.js';
import { phasesOf } from '../../src/activities/run/phases.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { plannedSteps, suiteDue } from '../../src/spec/schedule.js';
import { suiteDue as suiteDueOfWorkflow, totalSteps } from '../../src/workflows/run/step-schedule.js';

describe('whoever reads a run’s records expects of it what its workflow does', () => {
  const phase = (updates: number) => ({ name: 'p', updates, mini_batches_per_step: 3 });
  test.each([
    ['warm start and GRPO', [phase(7), phase(2)], 12, 4],
    ['GRPO alone', [], 9, 3],
    ['an empty phase', [phase(0)], 5, 2],
    ['a warm start alone', [phase(9)], 0, 2],
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
