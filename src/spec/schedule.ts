// Says what a run's spec requires at each step. Readers of the run's records use these functions.
import type { ControlRecord } from './records/control-records.js';
import type { SpecProblem } from './invalid-spec.js';
import type { PassRate } from './pass-rate.js';
import type { GeneratorSpec, RunSpec, SftPhaseSpec } from './run-spec.js';
import { suiteAfter } from './suite-due.js';

/** Names of the suites that runs play themselves; a step with both plays them in this order. */
export const runSuites = ['interval', 'final'] as const;
export type RunSuite = (typeof runSuites)[number];

export function isRunSuite(name: string): name is RunSuite {
  return (runSuites as readonly string[]).includes(name);
}

/** Maximum number of episodes of one state on one suite: a node has all of them open at once, and holds their transcripts. */
export const mostEpisodes = 20_000;

/** How the run's own suites are played: `samples` of each task. */
export function evaluationPlay(generator: GeneratorSpec): { samples: number; temperature: number } {
  return {
    samples: generator.eval_n_samples_per_prompt ?? 1,
    temperature: generator.eval_temperature ?? 1,
  };
}

/** A problem for each of the run's own suites that has more episodes than a node can have open. */
export function largeSuites({ data, generator }: RunSpec): SpecProblem[] {
  const { samples } = evaluationPlay(generator);
  return (['eval_tasks', 'final_eval_tasks'] as const)
    .filter((key) => samples > 1 && data[key] * samples > mostEpisodes)
    .map((key) => ({
      path: `data.${key}`,
      problem: `${data[key]} tasks × ${samples} samples are more than ${mostEpisodes} episodes`,
      fix: 'lower it, or lower generator.eval_n_samples_per_prompt',
    }));
}

/** `warmStart`: last step of the warm start, 0 without one; `total`: last step of the run if nothing ends it earlier. */
export function plannedSteps({ warm_start, trainer }: RunSpec): { warmStart: number; total: number } {
  const warmStart = lastWarmStep({ warm_start });
  return { warmStart, total: warmStart + trainer.max_training_steps };
}

/** `suiteAfter` for a spec. */
export function suiteDue(spec: RunSpec, step: number): RunSuite | null {
  return suiteAfter(step, { ...plannedSteps(spec), evalInterval: spec.trainer.eval_interval });
}

/** The spec with each `eval_interval` that was ever set: records do not show which interval a step used for its evaluation. */
export function specsInForce(spec: RunSpec, control: readonly ControlRecord[]): RunSpec[] {
  const set = control.flatMap(({ change }) =>
    change.kind === 'setHyperparameters' && change.eval_interval !== undefined ? [change.eval_interval] : [],
  );
  return [spec, ...set.map((eval_interval) => ({ ...spec, trainer: { ...spec.trainer, eval_interval } }))];
}

/** Steps after which a control record asks the run to stop. */
export function stopsAsked(control: readonly ControlRecord[]): number[] {
  return control.flatMap(({ change }) => (change.kind === 'stopAfter' ? [change.step] : []));
}

/** True if an interval evaluation after `step` ends the run. */
export function reachesTarget(spec: RunSpec, step: number, pass_at_1: PassRate): boolean {
  if (pass_at_1 === null) return false;
  const { target_pass_at_1 } = spec.trainer;
  return target_pass_at_1 > 0 && step > plannedSteps(spec).warmStart && pass_at_1 >= target_pass_at_1;
}

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
