// Steps of the supervised phases, and so where GRPO begins: after the last one, or after the base model, which is step 0.
import type { RunSpec, SftPhaseSpec } from './run-spec.js';

/** A phase's last step may have fewer mini-batches than the others. */
export function stepsOf({
  updates,
  mini_batches_per_step,
}: Pick<SftPhaseSpec, 'updates' | 'mini_batches_per_step'>): number {
  return Math.ceil(updates / mini_batches_per_step);
}

/** Its state is the policy that GRPO begins with, and the reference of a KL term. */
export function lastWarmStep({ warm_start }: Pick<RunSpec, 'warm_start'>): number {
  return warm_start.reduce((sum, phase) => sum + stepsOf(phase), 0);
}
