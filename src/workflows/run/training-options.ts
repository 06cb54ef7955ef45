// The options that start a training run, and what its workflow carries over continue-as-new.
import type { CarriedPlacement } from './node-placement.js';
import type { CarriedFigures } from './run-progress.js';

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
