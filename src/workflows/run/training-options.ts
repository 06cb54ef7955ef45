// The options that start a training run, and what its workflow carries over continue-as-new.
import type { CarriedPlacement } from './node-placement.js';
import type { CarriedFigures, RunProgress } from './run-progress.js';
import { workflowInfo } from '@temporalio/workflow';
import type { OpenedRun } from '../../activities/contracts.js';
import { untilFixed } from './blocking.js';
import type { ControlDesk } from './control-desk.js';
import { openRunPolicy, orchestratorPolicy } from '../policies.js';
import { orchestrator } from '../run-activities.js';

export interface TrainingOptions {
  /** Take the run over from an owner that cannot be asked whether it is still open (R20). */
  takeOver?: boolean;
  /** Set only by continue-as-new. */
  carried?: CarriedRun;
}

export interface CarriedRun {
  figures: CarriedFigures;
  /** A stop that the run had reached before this workflow began; starting the run again goes past it. */
  passedStop: number | null;
  /** Number of steps in a row that were not applied. */
  unapplied: number;
  /** Number of GRPO steps in a row with too few grades. */
  ungraded: number;
  leases: CarriedPlacement;
}

/** Opens the records, claims the run, and lets changes that arrived early be recorded. */
export async function openRun(
  spec: unknown,
  options: TrainingOptions,
  desk: ControlDesk,
  progress: RunProgress,
): Promise<OpenedRun> {
  const { workflowId, runId, firstExecutionRunId, namespace } = workflowInfo();
  const workflow = { workflowId, runId, firstExecutionRunId, namespace };
  const takeOver = options.takeOver === true;
  const opened = await untilFixed(desk, progress, () =>
    orchestrator('open', 'check the spec, open the records, claim the run', openRunPolicy).openRun({
      spec,
      workflow,
      ...(takeOver ? { takeOver } : {}),
    }),
  );
  const { outline, owner, position, control } = opened;
  progress.opened(outline, owner, position);
  let written = 0;
  // Starting a stopped run again goes past its stop; continue-as-new does not count as such a start.
  const reached = control.stopAfter !== null && control.stopAfter <= position.step;
  const passedStop = options.carried ? options.carried.passedStop : reached ? control.stopAfter : null;
  desk.open(
    control,
    passedStop,
    (updateId, change) =>
      orchestrator(`control/${++written}`, `record ${change.kind}`, orchestratorPolicy).recordControl({
        run: outline.run,
        owner,
        updateId,
        change,
      }),
    () => Math.max(0, progress.status.step) + (progress.status.phase === 'paused' ? 0 : 1),
  );
  return opened;
}
