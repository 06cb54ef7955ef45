// What a batch file holds (docs/engine-protocol.md, "The batch file").

/** Logical shards of a mini-batch: gradients are summed by shard, then over shards in order, on however many devices. */
export const shardCount = 8;

/** N nodes, T tokens, M targets. A forest: shared prefixes are inner nodes. */
export interface BatchArrays {
  /** [N,4]: parent (−1 for a root), length, mini-batch, shard (0..7). Sorted by (mini-batch, shard, order). */
  nodes: Int32Array;
  /** [T] of all nodes, in node order. */
  tokens: Int32Array;
  /** [M]: row of `tokens` whose output predicts the target. */
  target_rows: Int32Array;
  /** [M] */
  target_tokens: Int32Array;
  /** [M]; 1 for cross-entropy. */
  target_advantages: Float32Array;
  /** [M]; 0 for cross-entropy. */
  target_old_logprobs: Float32Array;
  /** [M,2]: mini-batch, shard; sorted as nodes are. */
  target_shards: Int32Array;
}
