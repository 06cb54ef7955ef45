// How a run stands that no record tells: whoever asks Temporal keeps it current, and the run's followers look at it.
import type { RunEnding } from './run-events.js';

export interface RunStanding {
  /** True once the run writes no more records. */
  over: boolean;
  /** Null while the run goes on, and where Temporal does not know its workflow any more. */
  ending: RunEnding | null;
  /** As the workflow names it; null where nobody could be asked yet. */
  phase: string | null;
  /** Why it waits for a person, or what keeps failing and is still tried. */
  blocked: { reason: string; remedy: string } | null;
}

/** Workflows end with what others have said to them: in what is told of it, `clean` takes secrets out. */
export function discreet(standing: RunStanding, clean: (text: string) => string): RunStanding {
  const { ending, blocked } = standing;
  return {
    ...standing,
    ending: ending && { ...ending, reason: ending.reason && clean(ending.reason) },
    blocked: blocked && { reason: clean(blocked.reason), remedy: clean(blocked.remedy) },
  };
}
