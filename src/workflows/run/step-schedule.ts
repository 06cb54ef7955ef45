// When evaluations and checkpoints are due: pure functions, so a retry, a new owner and continue-as-new all agree.
import type { ControlState, PhaseSpan, RunOutline } from '../../activities/contracts.js';
import { suiteAfter } from '../../spec/suite-due.js';

/** The outline with the intervals that people set while the run was under way. */
export function outlineUnder(outline: RunOutline, control: ControlState): RunOutline {
  const { ckpt_interval = outline.ckpt_interval, eval_interval = outline.eval_interval } = control;
  return { ...outline, ckpt_interval, eval_interval };
}

export function totalSteps({ phases }: RunOutline): number {
  return phases.at(-1)?.last ?? 0;
}

/** The phase of a step; for a step past the end, the last phase. */
export function phaseOf({ phases }: RunOutline, step: number): PhaseSpan | undefined {
  return phases.find((span) => step >= span.first && step <= span.last) ?? phases.at(-1);
}

/** Same rule as `suiteAfter`. */
export function suiteDue(outline: RunOutline, step: number): 'interval' | 'final' | null {
  const total = totalSteps(outline);
  const grpo = outline.phases.find(({ kind, first, last }) => kind === 'grpo' && last >= first);
  const warmStart = grpo ? grpo.first - 1 : total;
  return suiteAfter(step, { warmStart, total, evalInterval: outline.eval_interval });
}

/** True when a multiple of `interval` (1 or more) lies in `(last, step]`. */
export function checkpointDue(interval: number, last: number | null, step: number): boolean {
  return Math.floor(step / interval) > Math.floor((last ?? 0) / interval);
}
