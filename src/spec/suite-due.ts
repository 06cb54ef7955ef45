// Decides after which steps a run plays a suite. Workflows import this file, so it must stay deterministic and import nothing. Readers of a
// run's records use the same rule.

/** What the rule needs to know about a run. */
export interface SuiteSteps {
  /** Last step of the warm start; 0 without one. */
  warmStart: number;
  /** Last step of the run, if nothing ends it earlier. */
  total: number;
  /** Number of GRPO steps from one evaluation to the next; 0: no evaluations. */
  evalInterval: number;
}

/**
 * The suite that the run plays on the state after `step`, or null. The suite is `final` for the state with which GRPO begins, because the
 * report compares this state with the last one. It is `interval` before the first supervised step and after every `evalInterval` GRPO
 * steps. This function does not decide the evaluation at the run's end.
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
