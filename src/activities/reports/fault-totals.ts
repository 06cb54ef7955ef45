// The cost of a run's faults, for the Temporal UI and `status`. It is sent with each plan and covers the steps before it.
import { setTimeout as delay } from 'node:timers/promises';
import type { StepReference } from '../contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { NewestEntries } from '../../base/newest-entries.js';
import { type FaultFigures, type FaultTotals, readFaults } from '../../store/runs/fault-figures.js';

/** In a new process, the count for a long run may take longer than this; a later plan then carries it. */
const withinMs = 500;

export function withFaultTotals<I extends StepReference, O extends object>(
  activity: (deps: OrchestratorDeps, input: I) => Promise<O>,
): (deps: OrchestratorDeps, input: I) => Promise<O & { faults?: FaultFigures }> {
  const known = new NewestEntries<FaultTotals>();
  /** Runs whose faults are being counted now. Plans neither wait for a long count nor start it twice. */
  const counting = new Set<string>();
  const count = async ({ store, runs }: OrchestratorDeps, { run, step }: I): Promise<FaultFigures> => {
    const { record } = await runs.get(run);
    const before = known.get(run);
    const totals = await readFaults(
      store,
      record,
      step - 1,
      before && before.step < step ? before : undefined,
    );
    known.set(run, totals);
    return totals.figures;
  };
  return async (deps, input) => {
    const { run } = input;
    if (counting.has(run)) return activity(deps, input);
    counting.add(run);
    // A failed count must not prevent the plan.
    const counted = count(deps, input)
      .catch(() => null)
      .finally(() => counting.delete(run));
    const answer = await activity(deps, input);
    const faults = await Promise.race([counted, delay(withinMs, null, { ref: false })]);
    return faults && Object.keys(faults).length > 0 ? { ...answer, faults } : answer;
  };
}
