// The arrays of a batch file (docs/engine-protocol.md, "The batch file").
import type { EpisodeRecord } from './episode.js';
import type { GrpoPlan } from './plan.js';

/** N nodes, T tokens, M targets. The nodes of a mini-batch form the prefix tree of its samples: a common prefix is stored once. */
export interface BatchArrays {
  /** [N,3]: parent (−1 for a root), length, mini-batch. Sorted by mini-batch; a parent is in its children's mini-batch, before them. */
  nodes: Int32Array;
  /** [T]: tokens of all nodes, in node order. */
  tokens: Int32Array;
  /** [M]: index in `tokens` of the token that predicts the target. Sorted by mini-batch. */
  target_rows: Int32Array;
  /** [M]: the target tokens. */
  target_tokens: Int32Array;
  /** [M]: the sample of each target. Starts at 0; each value equals the one before it or is one more. */
  target_samples: Int32Array;
  /** [M]: advantages; 1 for cross-entropy. */
  target_advantages: Float32Array;
  /** [M]: the old log-probs for ratios; 0 for cross-entropy. If absent, the engine computes them under the state before the update. */
  target_old_logprobs?: Float32Array;
  /**
   * [M]: log-probs at sampling, for truncated importance sampling; absent if equal to the old log-probs. At least one of the two arrays is
   * present.
   */
  target_rollout_logprobs?: Float32Array;
}

/** Whether a plan leaves an episode out of the loss. Its value still counts in its group. */
export function isFiltered(
  { overlong_filtering, sampling }: Pick<GrpoPlan, 'overlong_filtering' | 'sampling'>,
  { stop_reason, turns }: Pick<EpisodeRecord, 'stop_reason' | 'turns'>,
): boolean {
  if (!overlong_filtering) return false;
  if (stop_reason !== 'max_turns') return stop_reason === 'length';
  const { start, end } = turns.at(-1) ?? { start: 0, end: 0 };
  return end - start >= sampling.max_generate_length || end >= sampling.max_sequence_length;
}
