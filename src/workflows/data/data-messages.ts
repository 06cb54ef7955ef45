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
  /** Of these, so many are checked: they passed, or failed. */
  passed: number;
  failed: number;
  result: PreparedDataset | null;
}

export const preparationQuery = defineQuery<PreparationStatus>('status');
