// The default retention of a run's checkpoints.
import type { RetentionSpec, RunSpec } from './run-spec.js';

/** By default keeps the newest two checkpoints, one at each tenth evaluation, and the best: enough for forks, few enough for any disk. */
export function retentionInForce({
  retention,
  trainer,
}: Pick<RunSpec, 'retention' | 'trainer'>): RetentionSpec {
  return retention ?? { keep_last: 2, keep_every: 10 * trainer.eval_interval, keep_best: 1 };
}
