// Which checkpoints of a run stay by default.
import type { RetentionSpec, RunSpec } from './run-spec.js';

/** The newest two, that of each tenth evaluation, and the best one: some for a fork, and few enough for any disk. */
export function retentionInForce({
  retention,
  trainer,
}: Pick<RunSpec, 'retention' | 'trainer'>): RetentionSpec {
  return retention ?? { keep_last: 2, keep_every: 10 * trainer.eval_interval, keep_best: 1 };
}
