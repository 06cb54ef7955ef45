// What the workflow `prepareDataset` answers to queries.
import { defineQuery } from '@temporalio/workflow';
import type { PreparedDataset } from '../../activities/data-contracts.js';

export interface PreparationStatus {
  phase: 'reading' | 'teaching' | 'checking' | 'writing' | 'completed';
  /** Tasks that the spec selects. */
  tasks: number;
  /** Those with a solution, given or taught. */
  solved: number;
  /** What the teacher has spent; null without a teacher. */
  spent: { tokens: number; usd: number } | null;
  /** The teacher’s budget ended before it had tried all tasks. */
  budget_spent: boolean;
  /** Tasks with a solution that passed all gates, and those that failed one. */
  passed: number;
  failed: number;
  result: PreparedDataset | null;
}

export const preparationQuery = defineQuery<PreparationStatus>('status');
