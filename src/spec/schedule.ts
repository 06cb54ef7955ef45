// What a run's spec asks for, step by step. `src/workflows/run/step-schedule.ts` decides it for the run; a workflow shares no
// code with those who read records, so a test holds both to the same answers.
import type { ControlRecord } from './records/control-records.js';
import type { PassRate } from './pass-rate.js';
import type { RunSpec } from './run-spec.js';
import { lastWarmStep } from './warm-start.js';

/** Names of the suites that runs play themselves, in this order where a step has both. */
export const runSuites = ['interval', 'final'] as const;
export type RunSuite = (typeof runSuites)[number];

export function isRunSuite(name: string): name is RunSuite {
  return (runSuites as readonly string[]).includes(name);
}

/** The last step of the warm start (0: there is none), and of the run if nothing ends it earlier. */
export function plannedSteps({ warm_start, trainer }: RunSpec): { warmStart: number; total: number } {
  const warmStart = lastWarmStep({ warm_start });
  return { warmStart, total: warmStart + trainer.max_training_steps };
}

/** The suite that the run plays on the state after `step` on its way; the evaluation at its end is not asked here. */
export function suiteDue(spec: RunSpec, step: number): RunSuite | null {
  const { warmStart, total } = plannedSteps(spec);
  if (step >= total) return null;
  if (step === warmStart && total > warmStart) return 'final';
  if (step === 0) return 'interval';
  const { eval_interval } = spec.trainer;
  if (step < warmStart || eval_interval <= 0) return null;
  return (step - warmStart) % eval_interval === 0 ? 'interval' : null;
}

/** With each `eval_interval` that was ever asked for: the records of steps do not tell when an evaluation was decided on. */
export function specsInForce(spec: RunSpec, control: readonly ControlRecord[]): RunSpec[] {
  const set = control.flatMap(({ change }) =>
    change.kind === 'setHyperparameters' && change.eval_interval !== undefined ? [change.eval_interval] : [],
  );
  return [spec, ...set.map((eval_interval) => ({ ...spec, trainer: { ...spec.trainer, eval_interval } }))];
}

/** Steps after which people have asked the run to stop. */
export function stopsAsked(control: readonly ControlRecord[]): number[] {
  return control.flatMap(({ change }) => (change.kind === 'stopAfter' ? [change.step] : []));
}

/** True where an interval evaluation after `step` ends the run. */
export function reachesTarget(spec: RunSpec, step: number, pass_at_1: PassRate): boolean {
  if (pass_at_1 === null) return false;
  const { target_pass_at_1 } = spec.trainer;
  return target_pass_at_1 > 0 && step > plannedSteps(spec).warmStart && pass_at_1 >= target_pass_at_1;
}
