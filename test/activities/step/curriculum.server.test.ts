// A curriculum by environment in a run of two environments: its plans can be made again from the records, by the audit and by the checker that
// was written from docs/records.md alone.
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { makePlan } from '../../../src/activities/step/plan-step.js';
import { planOf } from '../../../src/activities/step/step-plan.js';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { generateTasks } from '../../../examples/apps/generate.js';
import type { Task } from '../../../src/spec/records/task.js';
import type { GrpoPlan, PlanRecord } from '../../../src/spec/records/plan.js';
import { foldControl } from '../../../src/store/runs/control-records.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import { lastSftStep, run, specFor, writeData } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';
import { collect, passed, planned, setOutcome, step, update } from './grpo-step.js';

useHarness();

const checker = new URL('../../store/audit/outside-checker.py', import.meta.url).pathname;
let spec: Record<string, unknown>;
let tasks: Task[];

beforeEach(() => {
  const data = writeData(harness.folder);
  tasks = generateTasks({ apps: ['tracker', 'booking'], seed: 1, train_tasks: 24, held_out_tasks: 4 });
  write(tasks);
  spec = { ...specFor(data), environments: [{ env_key: 'tracker' }, { env_key: 'booking' }] };
});

const write = (some: readonly Task[]): void =>
  writeFileSync(
    join(harness.folder, 'tasks.jsonl'),
    some.map((task) => `${JSON.stringify(task)}\n`).join(''),
  );

function withTrainer(more: Record<string, unknown>): Record<string, unknown> {
  const { curriculum_floor: _, ...trainer } = spec['trainer'] as Record<string, unknown>;
  return { ...spec, trainer: { ...trainer, ...more } };
}

/** Takes three GRPO steps, in which the first sample of each group passes; returns their plans. */
async function threeSteps(given: unknown): Promise<GrpoPlan[]> {
  await harness.open(given);
  await harness.advance(lastSftStep);
  const plans: GrpoPlan[] = [];
  for (let at = step; at < step + 3; at++) {
    const { answer, plan } = await planned(at);
    await collect(answer);
    for (const { slot } of plan.slots) await setOutcome(slot, 0, passed, at);
    await update(answer);
    plans.push(plan);
  }
  return plans;
}

async function expectChecked(): Promise<void> {
  expect((await auditRun(harness.store, run)).violations).toEqual([]);
  const { status, stdout, stderr } = spawnSync('python3', [checker, join(harness.folder, 'store'), run], {
    encoding: 'utf8',
  });
  expect(`${stderr}${stdout}`).toMatch(/^nothing disagrees: [0-9]+ checks/);
  expect(status).toBe(0);
}

const perEnvironment = ({ slots }: GrpoPlan): Record<string, number> => ({
  tracker: slots.filter(({ env_key }) => env_key === 'tracker').length,
  booking: slots.filter(({ env_key }) => env_key === 'booking').length,
});

describe('a curriculum', () => {
  it('by environment keeps rates and cursors by environment', async () => {
    const curriculum = { by: 'env', floor: 0.05, max_share: 0.7, weights: { booking: 1.5 } };
    const plans = await threeSteps(withTrainer({ curriculum, train_batch_size: 3 }));
    for (const plan of plans) {
      expect(plan.curriculum.by).toBe('env');
      expect(Object.values(perEnvironment(plan)).every((slots) => slots <= 3)).toBe(true);
    }
    const [, second, third] = plans.map((plan) => plan.curriculum);
    expect(Object.keys(second?.pass_rates ?? {}).every((key) => ['tracker', 'booking'].includes(key))).toBe(
      true,
    );
    const drawn = Object.values(third?.cursors ?? {}).reduce((sum, cursor) => sum + cursor, 0);
    expect(drawn).toBe(9);
    await expectChecked();
  });

  it('in balance shares every step evenly', async () => {
    const plans = await threeSteps(withTrainer({ balance: 'env', curriculum: {}, train_batch_size: 3 }));
    expect(plans.map((plan) => Object.values(perEnvironment(plan)).sort())).toEqual([
      [1, 2],
      [1, 2],
      [1, 2],
    ]);
    const total = plans.map(perEnvironment);
    expect(Math.abs(total.reduce((sum, { tracker = 0, booking = 0 }) => sum + tracker - booking, 0))).toBe(1);
    await expectChecked();
  });

  it('by template with factors is checked, too', async () => {
    await threeSteps(withTrainer({ curriculum: { weights: { tracker: 3 }, max_share: 0.6 } }));
    await expectChecked();
  });

  it('gives no slot more than the largest share, and a changed plan is not the one that is made again', async () => {
    const curriculum = { by: 'env', max_share: 0.56, weights: { tracker: 1e6 } };
    await harness.open(withTrainer({ curriculum, train_batch_size: 25 }));
    await harness.advance(lastSftStep);
    const { plan } = await planned(step);
    expect(perEnvironment(plan)).toEqual({ tracker: 14, booking: 11 });
    const remade = (stored: PlanRecord) => makePlan(harness.orchestrator, stored, [], false);
    expect(await remade(plan)).toEqual(plan);
    expect(await remade({ ...plan, curriculum: { ...plan.curriculum, cursors: {} } })).toEqual(plan);
  });

  it('begins again in a fork whose parent kept rates by something else', async () => {
    const parent = (await threeSteps(withTrainer({ curriculum: { by: 'env' } })))[2] as GrpoPlan;
    const data = await harness.orchestrator.runs.get(run);
    const { identity } = await readUpdate(harness.store, run, step + 2);
    const next = (by: 'env' | 'template') => {
      const trainer = { ...data.record.spec.trainer, curriculum: { by, floor: 0.1 } };
      return planOf({
        own: { ...parent, step: step + 3 },
        data: { ...data, record: { ...data.record, spec: { ...data.record.spec, trainer } } },
        control: foldControl([]),
        before: { plan: parent, identity },
        rebases: null,
        reference: () => Promise.reject(new Error('the plan has no KL term')),
      });
    };
    expect(Object.keys((await next('env')).curriculum.pass_rates).sort()).toEqual(['booking', 'tracker']);
    const { pass_rates, cursors, by } = (await next('template')).curriculum;
    expect({ pass_rates, by }).toEqual({ pass_rates: {}, by: undefined });
    expect(Object.values(cursors).reduce((sum, cursor) => sum + cursor, 0)).toBe(2);
  });

  it('goes with overlong filtering, which the plan names', async () => {
    const more = { apply_overlong_filtering: true };
    const plans = await threeSteps(withTrainer({ curriculum: {}, ...more }));
    expect(plans.map(({ overlong_filtering }) => overlong_filtering)).toEqual([true, true, true]);
    // A turn of this run has room for six tokens, which the barely trained policy always fills.
    const { identity } = await readUpdate(harness.store, run, step);
    expect(identity.applied).toEqual({ reason: 'all_filtered' });
    await expectChecked();
  });

  it('is refused for data that it cannot draw from', async () => {
    const refusal = (more: Record<string, unknown>) => harness.open(withTrainer(more));
    await expect(refusal({ curriculum: { by: 'env', max_share: 0.4 } })).rejects.toThrow(
      /trainer\.curriculum\.max_share: 0\.4 is too little for 2 environments: .*raise it to 0\.5 or more/,
    );
    write(tasks.map((task) => ({ ...task, template: 'same' })));
    await expect(refusal({ balance: 'env' })).rejects.toThrow(
      /trainer\.balance: is by environment, but the template "same" has tasks of booking and tracker/,
    );
    write(tasks.map((task) => ({ ...task, split: task.env_key === 'booking' ? 'held_out' : task.split })));
    await expect(refusal({ curriculum: { weights: { booking: 2 } } })).rejects.toThrow(
      /weights\.booking: the data has no training task of this environment/,
    );
  });
});
