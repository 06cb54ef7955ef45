// Counts the steps of the supervised phases. GRPO begins after the last supervised step, or after the base model (step 0) if there are no
// supervised steps.
import type { RunSpec, SftPhaseSpec } from './run-spec.js';

/** Number of steps of a phase; its last step may have fewer mini-batches than the others. */
export function stepsOf({
  updates,
  mini_batches_per_step,
}: Pick<SftPhaseSpec, 'updates' | 'mini_batches_per_step'>): number {
  return Math.ceil(updates / mini_batches_per_step);
}

/** Last supervised step, 0 without a warm start. Its state is the policy that GRPO starts from, and the reference of a KL term. */
export function lastWarmStep({ warm_start }: Pick<RunSpec, 'warm_start'>): number {
  return warm_start.reduce((sum, phase) => sum + stepsOf(phase), 0);
}
