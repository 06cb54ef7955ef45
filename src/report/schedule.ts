// What a run's spec asks for, step by step. `src/workflows/step-schedule.ts` decides it for the run; a workflow shares no
// code with the report, so a test holds both to the same answers.
import type { RunSpec } from '../spec/run-spec.js';
import { lastWarmStep } from '../spec/warm-start.js';

export type SuiteName = 'interval' | 'final';

/** The last step of the warm start (0: there is none), and of the run if nothing ends it earlier. */
export function plannedSteps({ warm_start, trainer }: RunSpec): { warmStart: number; total: number } {
  const warmStart = lastWarmStep({ warm_start });
  return { warmStart, total: warmStart + trainer.max_training_steps };
}

/** The suite that the run plays on the state after `step` on its way; the evaluation at its end is not asked here. */
export function suiteDue(spec: RunSpec, step: number): SuiteName | null {
  const { warmStart, total } = plannedSteps(spec);
  if (step >= total) return null;
  if (step === warmStart && total > warmStart) return 'final';
  if (step === 0) return 'interval';
  const { eval_interval } = spec.trainer;
  if (step < warmStart || eval_interval <= 0) return null;
  return (step - warmStart) % eval_interval === 0 ? 'interval' : null;
}

/** True where an interval evaluation after `step` ends the run. */
export function reachesTarget(spec: RunSpec, step: number, pass_at_1: number): boolean {
  const { target_pass_at_1 } = spec.trainer;
  return target_pass_at_1 > 0 && step > plannedSteps(spec).warmStart && pass_at_1 >= target_pass_at_1;
}
