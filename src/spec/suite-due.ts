// After which steps a run plays a suite. Workflows import this file as it is, and readers of a run's records expect the same.

/** What the rule needs to know of a run. */
export interface SuiteSteps {
  /** Last step of the warm start; 0 without one. */
  warmStart: number;
  /** Last step, if nothing ends the run earlier. */
  total: number;
  /** GRPO steps between two evaluations; 0: none. */
  evalInterval: number;
}

/**
 * The suite that the run plays on the state after `step` on its way; the evaluation at its end is not decided here. `final` where GRPO
 * begins, because the report compares it with the end; `interval` before the first supervised step and every `evalInterval` GRPO steps.
 */
export function suiteAfter(
  step: number,
  { warmStart, total, evalInterval }: SuiteSteps,
): 'interval' | 'final' | null {
  if (step >= total) return null;
  if (step === warmStart) return 'final';
  if (step === 0) return 'interval';
  if (step < warmStart || evalInterval <= 0) return null;
  return (step - warmStart) % evalInterval === 0 ? 'interval' : null;
}
