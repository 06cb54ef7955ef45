// What the workflow `evalSweep` answers to queries and returns.
import { defineQuery } from '@temporalio/workflow';
import type { FailedPair, PairToDo } from '../../activities/sweep-contracts.js';

export interface SweepStatus {
  sweep: string;
  phase: 'planning' | 'evaluating' | 'comparing' | 'completed' | 'incomplete' | 'cancelled';
  pairs: number;
  /** Number of pairs that have a result, from this sweep or from before. */
  done: number;
  /** Episodes that any try of this sweep has played; episodes from before are not counted. */
  episodes: number;
  running: (PairToDo & { node: string })[];
  /** Why no node works for the sweep; null if a node does. */
  waitsFor: string | null;
  failed: FailedPair[];
  report: string | null;
  alarms: string[];
  gaps: string[];
}

export interface SweepResult {
  sweep: string;
  /** `incomplete`: some pairs failed or could not be compared. Starting the sweep again under the same id tries only those. */
  ended: 'completed' | 'incomplete';
  pairs: number;
  episodes: number;
  failed: FailedPair[];
  report: string;
  alarms: string[];
  /** Texts about what could not be compared. */
  gaps: string[];
  /** The comparison as text, at most 4,000 characters. */
  table: string;
}

export const sweepStatusQuery = defineQuery<SweepStatus>('status');
