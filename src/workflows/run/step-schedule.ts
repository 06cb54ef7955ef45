// When a run does what, as functions of its outline and control alone: a retry, a new owner and continue-as-new agree on all of it.
import type { ControlState, PhaseSpan, RunOutline } from '../../activities/contracts.js';

/** The outline with the intervals that people have set while the run was under way. */
export function outlineUnder(outline: RunOutline, control: ControlState): RunOutline {
  const { ckpt_interval = outline.ckpt_interval, eval_interval = outline.eval_interval } = control;
  return { ...outline, ckpt_interval, eval_interval };
}

export function totalSteps({ phases }: RunOutline): number {
  return phases.at(-1)?.last ?? 0;
}

/** The phase of a step; the last one past the end. */
export function phaseOf({ phases }: RunOutline, step: number): PhaseSpan | undefined {
  return phases.find((span) => step >= span.first && step <= span.last) ?? phases.at(-1);
}

/**
 * The suite to evaluate on the state after `step`, or null. `final` where GRPO begins, because the report compares it with the
 * end; `interval` before the first supervised step and every `eval_interval` GRPO steps. The run's end is not asked here.
 */
export function suiteDue(outline: RunOutline, step: number): 'interval' | 'final' | null {
  if (step >= totalSteps(outline)) return null;
  const spans = outline.phases.filter((span) => span.last >= span.first);
  const grpo = spans.find((span) => span.kind === 'grpo');
  if (grpo && step === grpo.first - 1) return 'final';
  const sft = spans.find((span) => span.kind === 'sft');
  if (sft && step === sft.first - 1) return 'interval';
  if (!grpo || step < grpo.first) return null;
  return (step - grpo.first + 1) % outline.eval_interval === 0 ? 'interval' : null;
}

/** True when a multiple of `interval` (1 or more) lies in `(last, step]`. */
export function checkpointDue(interval: number, last: number | null, step: number): boolean {
  return Math.floor(step / interval) > Math.floor((last ?? 0) / interval);
}
