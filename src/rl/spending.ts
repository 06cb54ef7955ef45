// A run's spending, computed from the records of its steps, so that restarts lose nothing.
import type { Spent } from '../spec/budget.js';
import type { UpdateRecord } from '../spec/records/update.js';

/**
 * Spending of one step. GPU time is the time with at least one engine verb or environment call in flight, evaluations included. If the
 * worker was restarted since the last step, only the update's time is known. Nodes that only play episodes count the time of their calls.
 */
export function spentBy({ identity, observed }: UpdateRecord): Omit<Spent, 'wall_seconds'> {
  const { metrics, timings_ms } = observed;
  return {
    tokens: Math.round((metrics['generate/avg_num_tokens'] ?? 0) * identity.outcomes.flat().length),
    gpu_seconds:
      ((timings_ms['in_flight'] ?? timings_ms['policy_train'] ?? 0) + (timings_ms['elsewhere'] ?? 0)) / 1000,
  };
}

/** Spending of the run's own steps. The steps that a fork shares with its parent are left out. */
export function spentInAll(run: string, updates: readonly UpdateRecord[]): Omit<Spent, 'wall_seconds'> {
  const own = updates.filter(({ identity }) => identity.run === run).map(spentBy);
  return {
    tokens: own.reduce((sum, { tokens }) => sum + tokens, 0),
    gpu_seconds: own.reduce((sum, { gpu_seconds }) => sum + gpu_seconds, 0),
  };
}
