// What the workflow `prepareDataset` answers to queries.
import { defineQuery } from '@temporalio/workflow';
import type { PreparedDataset } from '../../activities/data-contracts.js';

export interface PreparationStatus {
  phase: 'reading' | 'teaching' | 'checking' | 'writing' | 'completed';
  /** Tasks that the spec selects. */
  tasks: number;
  /** Tasks with a solution, given or taught. */
  solved: number;
  /** What the teacher has spent; null without a teacher. */
  spent: { tokens: number; usd: number } | null;
  /** True if the teacher’s budget was spent before all tasks had been tried. */
  budget_spent: boolean;
  /** Numbers of tasks with a solution that passed all gates, and that failed one. */
  passed: number;
  failed: number;
  result: PreparedDataset | null;
}

export const preparationQuery = defineQuery<PreparationStatus>('status');
