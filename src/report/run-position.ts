// How far a run has come, according to its records. Records cannot tell whether an unfinished run is running, was cancelled, is blocked or
// has lost its server.
import { foldControl } from '../store/runs/control-records.js';
import { budgetIsSpent } from './budget.js';
import type { RunHistory } from './history/run-history.js';
import { endingText, type TargetEnding } from '../spec/pass-rate.js';
import { plannedSteps, reachesTarget } from '../spec/schedule.js';

type RunPosition =
  /** `ending`: null if the run ended with its last planned step. */
  | { kind: 'completed'; step: number; ending: TargetEnding | null }
  | { kind: 'stopped'; step: number }
  | { kind: 'paused' | 'unfinished'; step: number; atMost: number };

/** A run ends with the evaluation of its last state. Before that evaluation it has not ended. */
export function positionOf(history: RunHistory): RunPosition {
  const { record, updates, evaluations, control } = history;
  const step = updates.at(-1)?.identity.step ?? 0;
  const { total } = plannedSteps(record.spec);
  const here = evaluations.filter((figure) => figure.step === step);
  const { paused, stopAfter } = foldControl(control);
  const final = here.find(({ result }) => result.suite_name === 'final')?.result;
  if (final) {
    const targetReached = here.some(
      ({ result }) => result.suite_name === 'interval' && reachesTarget(record.spec, step, result.pass_at_1),
    );
    const target = record.spec.trainer.target_pass_at_1;
    if (targetReached) return { kind: 'completed', step, ending: { step, target, final } };
    if (step >= total) return { kind: 'completed', step, ending: null };
    if (stopAfter !== null && step >= stopAfter) return { kind: 'stopped', step };
    if (budgetIsSpent(history, final.observed.committed_at)) return { kind: 'stopped', step };
  }
  return { kind: paused ? 'paused' : 'unfinished', step, atMost: total };
}

export function hasEnded(position: RunPosition): boolean {
  return position.kind === 'completed' || position.kind === 'stopped';
}

export function inWords(position: RunPosition): string {
  switch (position.kind) {
    case 'completed':
      return position.ending ? endingText(position.ending) : `completed at step ${position.step}`;
    case 'stopped':
      return `stopped at step ${position.step}`;
    case 'paused':
    case 'unfinished':
      return `${position.kind}: step ${position.step} of at most ${position.atMost}`;
  }
}
