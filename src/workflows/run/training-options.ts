// What a training run is started with, and what its workflow hands to its own successor.
import type { CarriedPlacement } from './node-placement.js';
import type { CarriedFigures } from './run-progress.js';

export interface TrainingOptions {
  /** Take the run over from an owner that cannot be asked (R20). */
  takeOver?: boolean;
  /** Set by continue-as-new only. */
  carried?: CarriedRun;
}

export interface CarriedRun {
  figures: CarriedFigures;
  /** A stop that was reached before this workflow began: starting the run again goes past it. */
  passedStop: number | null;
  /** Steps in a row that were not applied. */
  unapplied: number;
  /** GRPO steps in a row with too few grades. */
  ungraded?: number;
  leases: CarriedPlacement;
}
