// The answers of the workflow `evalSweep`.
import { defineQuery } from '@temporalio/workflow';
import type { FailedPair, PairToDo } from '../../activities/sweep-contracts.js';

export interface SweepStatus {
  sweep: string;
  phase: 'planning' | 'evaluating' | 'comparing' | 'completed' | 'incomplete' | 'cancelled';
  pairs: number;
  /** Evaluated before this sweep or by it. */
  done: number;
  /** Episodes played by any try of this sweep; those that existed before are not counted. */
  episodes: number;
  running: (PairToDo & { node: string })[];
  /** Why no node works for it; null if one does. */
  waitsFor: string | null;
  failed: FailedPair[];
  report: string | null;
  alarms: string[];
  gaps: string[];
}

export interface SweepResult {
  sweep: string;
  /** `incomplete`: some pairs failed, or could not be compared; starting the sweep again under the same id tries those alone. */
  ended: 'completed' | 'incomplete';
  pairs: number;
  episodes: number;
  failed: FailedPair[];
  report: string;
  alarms: string[];
  /** What could not be compared. */
  gaps: string[];
  /** The comparison as text, at most 4,000 characters. */
  table: string;
}

export const sweepStatusQuery = defineQuery<SweepStatus>('status');
