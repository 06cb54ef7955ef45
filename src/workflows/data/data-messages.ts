// What the workflow `prepareDataset` answers to queries.
import { defineQuery } from '@temporalio/workflow';
import type { PreparedDataset } from '../../activities/data-contracts.js';

export interface PreparationStatus {
  phase: 'reading' | 'checking' | 'writing' | 'completed';
  /** Tasks that the spec selects. */
  tasks: number;
  /** Those with a solution. */
  solved: number;
  /** Of these, so many are checked: they passed, or failed. */
  passed: number;
  failed: number;
  result: PreparedDataset | null;
}

export const preparationQuery = defineQuery<PreparationStatus>('status');
