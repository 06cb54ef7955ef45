// Draws the slots of a step from the training tasks, for its plan and for its waves.
import type { RunData } from '../../data/run-data.js';
import { type CurriculumRules, drawTasks } from '../../rl/curriculum.js';
import { hash32 } from '../../rl/random.js';
import type { CurriculumState, GrpoPlan, SlotPlan } from '../../spec/records/plan.js';
import type { Task } from '../../spec/records/task.js';
import type { TrainerSpec } from '../../spec/run-spec.js';

/** Which tasks share a pass rate: those of a template, or those of an environment. */
export type PoolKind = 'template' | 'env';

export const poolOf = (
  { template, env_key }: Pick<SlotPlan, 'template' | 'env_key'>,
  by: PoolKind,
): string => (by === 'env' ? env_key : template);

export function rulesOf({ curriculum, curriculum_floor, balance }: TrainerSpec): CurriculumRules {
  return {
    floor: curriculum?.floor ?? curriculum_floor,
    maxShare: curriculum?.max_share,
    weights: curriculum?.weights,
    balanced: balance === 'env',
  };
}

/** SkyRL's default of `min_replace_ratio`. */
const usualReplaceRatio = 0.3;

/** The part of a plan from which its waves follow; empty without dynamic sampling. */
export function dynamicSamplingOf(
  { dynamic_sampling, train_batch_size }: TrainerSpec,
  { floor, maxShare, weights, balanced }: CurriculumRules,
): Pick<GrpoPlan, 'dynamic_sampling'> {
  if (!dynamic_sampling) return {};
  const { type, max_sample_batches, min_replace_ratio = usualReplaceRatio } = dynamic_sampling;
  // As in SkyRL, more than this share of the groups is enough to replace the others.
  const enough = Math.min(train_batch_size, Math.floor(min_replace_ratio * train_batch_size) + 1);
  return {
    dynamic_sampling: {
      ...{ type, max_sample_batches, wanted: type === 'filter' ? train_batch_size : enough, floor },
      ...(maxShare === undefined ? {} : { max_share: maxShare }),
      ...(weights === undefined ? {} : { weights: { ...weights } }),
      ...(balanced ? { balance: 'env' as const } : {}),
    },
  };
}

/** `earlier`: the step's slots so far, and how many of them its plan has; absent for the plan itself. */
export function drawSlots(
  data: Pick<RunData, 'record' | 'trainTasks' | 'taskByKey'>,
  draw: {
    step: number;
    by: PoolKind;
    rules: CurriculumRules;
    state: Pick<CurriculumState, 'pass_rates' | 'cursors'>;
    count: number;
    earlier?: { slots: readonly SlotPlan[]; planned: number };
  },
): { slots: SlotPlan[]; cursors: Record<string, number> } {
  const { step, by, rules, state, count, earlier } = draw;
  const { seed } = data.record;
  const tasks = data.trainTasks[by];
  const taskOf = (key: string): Task => data.taskByKey.get(key) as Task;
  const drawn = drawTasks({
    pools: new Map(
      [...tasks].map(([pool, keys]) => [pool, { size: keys.length, env: taskOf(keys[0] as string).env_key }]),
    ),
    ...{ state, count, rules, seed, step },
    ...(earlier && {
      earlier: {
        planned: earlier.planned,
        tasks: earlier.slots.map((slot) => {
          const pool = poolOf(slot, by);
          return { pool, index: tasks.get(pool)?.indexOf(slot.task_key) ?? -1 };
        }),
      },
    }),
  });
  const first = earlier?.slots.length ?? 0;
  const slots = drawn.tasks.map(({ pool, index }, at) => {
    const { task_key, env_key, template } = taskOf(tasks.get(pool)?.[index] as string);
    const slot = first + at;
    return { slot, task_key, env_key, template, seed: hash32(seed, step, slot) };
  });
  return { slots, cursors: drawn.cursors };
}
