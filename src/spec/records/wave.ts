// A wave: further slots of a step with dynamic sampling, planned from the outcomes of the slots before. A function of records (R2).
import { z } from 'zod';
import { counts, digest, positive, text } from './parts.js';
import { type GrpoPlan, slot, type SlotPlan } from './plan.js';

export type WaveRecord = z.infer<typeof wave>;
export const wave = z.strictObject({
  schema: z.literal('longhaul.wave/1'),
  run: text,
  step: positive,
  wave: positive.describe('the plan’s own slots are wave 0'),
  plan: digest,
  outcomes: digest.describe('sha256 of the canonical JSON of all earlier slots’ outcomes'),
  slots: z.array(slot).min(1).describe('as in the plan; numbers continue after its slots'),
  cursors: counts.describe('as in the plan, after this wave'),
});

/** All slots of a step, in order. */
export function slotsWith(plan: GrpoPlan, waves: readonly WaveRecord[]): SlotPlan[] {
  return [...plan.slots, ...waves.flatMap(({ slots }) => slots)];
}

/** The plan as if it had planned its waves, too. Its digest is not the plan's. */
export function withWaves(plan: GrpoPlan, waves: readonly WaveRecord[]): GrpoPlan {
  const cursors = waves.at(-1)?.cursors ?? plan.curriculum.cursors;
  return { ...plan, slots: slotsWith(plan, waves), curriculum: { ...plan.curriculum, cursors } };
}

/** True if a group's values differ, so that it can carry a loss. */
export function hasSignal(values: readonly (number | null)[]): boolean {
  const graded = values.filter((value) => value !== null);
  return graded.some((value) => value !== graded[0]);
}

/**
 * The slots whose groups form the batch, in the batch's order; `outcomes` has all slots of the step. Without dynamic sampling, these are all slots.
 * With it, they are the first groups with a signal, at most as many as the plan has slots. If fewer groups have a signal, but at least
 * `wanted`, `replace` repeats them in turn.
 */
export function groupsInBatch(
  { slots, dynamic_sampling }: Pick<GrpoPlan, 'slots' | 'dynamic_sampling'>,
  outcomes: readonly (readonly (number | null)[])[],
): number[] {
  if (!dynamic_sampling) return outcomes.map((_, slot) => slot);
  const good = outcomes.flatMap((values, slot) => (hasSignal(values) ? [slot] : [])).slice(0, slots.length);
  if (dynamic_sampling.type === 'filter' || good.length < dynamic_sampling.wanted) return good;
  return slots.map((_, place) => good[place % good.length] as number);
}
