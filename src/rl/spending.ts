// What a run has used, counted from its steps' records, so that restarts lose nothing.
import type { Spent } from '../spec/budget.js';
import type { UpdateRecord } from '../spec/records/update.js';

/**
 * What one step used. A node's time is that with an engine verb or an environment call in flight, evaluations included; if the worker was
 * restarted, only that of the update. For nodes that only play episodes it is the time of their calls.
 */
export function spentBy({ identity, observed }: UpdateRecord): Omit<Spent, 'wall_seconds'> {
  const { metrics, timings_ms } = observed;
  return {
    tokens: Math.round((metrics['generate/avg_num_tokens'] ?? 0) * identity.outcomes.flat().length),
    gpu_seconds:
      ((timings_ms['in_flight'] ?? timings_ms['policy_train'] ?? 0) + (timings_ms['elsewhere'] ?? 0)) / 1000,
  };
}

/** Spending of the run's own steps, without the steps that a fork has from its parent. */
export function spentInAll(run: string, updates: readonly UpdateRecord[]): Omit<Spent, 'wall_seconds'> {
  const own = updates.filter(({ identity }) => identity.run === run).map(spentBy);
  return {
    tokens: own.reduce((sum, { tokens }) => sum + tokens, 0),
    gpu_seconds: own.reduce((sum, { gpu_seconds }) => sum + gpu_seconds, 0),
  };
}
