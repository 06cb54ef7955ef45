// What only Temporal knows about a run. The follower process keeps it current, and the run's followers read it.
import type { RunEnding } from './run-events.js';

export interface RunStanding {
  /** True once the run writes no more records. */
  over: boolean;
  /** Null while the run continues, and if Temporal no longer knows its workflow. */
  ending: RunEnding | null;
  /** The phase as the workflow reports it; null if the workflow could not be asked. */
  phase: string | null;
  /** Why the run waits for a person, or which failure repeats and is still tried. */
  blocked: { reason: string; remedy: string } | null;
}

/** Removes secrets by `clean`, because the failures of workflows repeat messages from outside. */
export function discreet(standing: RunStanding, clean: (text: string) => string): RunStanding {
  const { ending, blocked } = standing;
  return {
    ...standing,
    ending: ending && { ...ending, reason: ending.reason && clean(ending.reason) },
    blocked: blocked && { reason: clean(blocked.reason), remedy: clean(blocked.remedy) },
  };
}
