// What a workflow can read from an activity's failure.
import { ActivityFailure, ApplicationFailure, TimeoutFailure } from '@temporalio/workflow';
import type { ControlIsBehind, ControlState, FatalFailure, Standstill } from '../activities/contracts.js';

/** The standstill (R27: the activity failed in the same way again and again) that a failure carries; null for any other failure. */
export function standstillIn(error: unknown): (Standstill & { reason: string }) | null {
  if (!(error instanceof ActivityFailure) || !(error.cause instanceof ApplicationFailure)) return null;
  const { type, details, message } = error.cause;
  if (type !== ('NoProgress' satisfies FatalFailure)) return null;
  const [standstill] = (details ?? []) as Partial<Standstill>[];
  return { recorded: standstill?.recorded === true, reason: message };
}

/** True if the work failed again and again on its node: the node may be the cause. */
export function standsStill(error: unknown): boolean {
  return standstillIn(error) !== null;
}

/** True if the node's result differs from a record: the node may be wrong (R19). */
export function hasDiverged(error: unknown): boolean {
  if (!(error instanceof ActivityFailure) || !(error.cause instanceof ApplicationFailure)) return false;
  return error.cause.type === ('Diverged' satisfies FatalFailure);
}

/** True when no worker took a task from the node's queue: the node is gone. */
export function nodeIsGone(error: unknown): boolean {
  if (!(error instanceof ActivityFailure) || !(error.cause instanceof TimeoutFailure)) return false;
  return error.cause.timeoutType === 'SCHEDULE_TO_START';
}

/** The control records that a reset to an earlier point made the workflow forget, as `planStep` reports them; null if none. */
export function forgottenControl(error: unknown): ControlState | null {
  if (!(error instanceof ActivityFailure) || !(error.cause instanceof ApplicationFailure)) return null;
  const { type, details } = error.cause;
  if (type !== ('ControlIsBehind' satisfies ControlIsBehind)) return null;
  return (details?.[0] ?? null) as ControlState | null;
}
