// The standing of a run that no record shows: the caller that asks Temporal keeps it current, and the run's followers read it.
import type { RunEnding } from './run-events.js';

export interface RunStanding {
  /** True once the run writes no more records. */
  over: boolean;
  /** Null while the run goes on, and if Temporal no longer knows its workflow. */
  ending: RunEnding | null;
  /** As the workflow names it; null while it could not be asked. */
  phase: string | null;
  /** Why it waits for a person, or what keeps failing and is still tried. */
  blocked: { reason: string; remedy: string } | null;
}

/** Workflows repeat messages from outside in their failures: `clean` removes secrets from them. */
export function discreet(standing: RunStanding, clean: (text: string) => string): RunStanding {
  const { ending, blocked } = standing;
  return {
    ...standing,
    ending: ending && { ...ending, reason: ending.reason && clean(ending.reason) },
    blocked: blocked && { reason: clean(blocked.reason), remedy: clean(blocked.remedy) },
  };
}
