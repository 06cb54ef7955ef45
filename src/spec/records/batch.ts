// What a batch file holds (docs/engine-protocol.md, "The batch file").

/** N nodes, T tokens, M targets. The nodes of a mini-batch are the prefix tree of its samples: a common beginning is stored once. */
export interface BatchArrays {
  /** [N,3]: parent (−1 for a root), length, mini-batch. Sorted by mini-batch; a parent precedes its children, in the same one. */
  nodes: Int32Array;
  /** [T] of all nodes, in node order. */
  tokens: Int32Array;
  /** [M]: row of `tokens` that predicts the target. Sorted by the mini-batch of the row. */
  target_rows: Int32Array;
  /** [M] */
  target_tokens: Int32Array;
  /** [M]: which sample a target belongs to: from 0, each as the one before or one more. */
  target_samples: Int32Array;
  /** [M]; 1 for cross-entropy. */
  target_advantages: Float32Array;
  /**
   * [M]: the old log-probs for ratios; 0 for cross-entropy. Absent: log-probs under the state before the update, which the engine computes.
   */
  target_old_logprobs?: Float32Array;
  /** [M]: log-probs at sampling, for truncated importance sampling; absent if they equal the old ones. One of the two is present. */
  target_rollout_logprobs?: Float32Array;
}
