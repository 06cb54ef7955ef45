// Forward over a block-wise KV cache; prefill and decode are the same call. A row's output depends only on its own tokens, never on the
// other rows of the call, so log-probs equal the log-probs of training bit for bit.
#pragma once

#include <cstddef>
#include <span>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "model/inference/feed.h"
#include "model/policy.h"

namespace longhaul {

/// The blocks in a CPU's memory. The capacity is only address space: a block takes
/// memory when it is first written. So allocate low ids first: a cache costs as much as the highest block ever used. Addresses never move.
class KvCache final : public BlockCache {
 public:
  /// Throws std::bad_alloc if even the address space is not available.
  KvCache(const Architecture& architecture, int block_capacity);

  int block_capacity() const override { return block_capacity_; }
  static size_t block_bytes(const Architecture& architecture);

  /// Keys of one block, layer and KV head: [head_dim, 32 positions]; then its values: [⌈head_dim / 32⌉, 32 positions, 32], zero past
  /// head_dim.
  float* keys(int block, int layer, int head);

  /// Stride from one block to the next, and from one KV head to the next, in floats.
  size_t block_stride() const;
  size_t head_stride() const { return head_stride_; }

  void copy_block(int from, int to) override;

 private:
  int block_capacity_ = 0;
  int layers_ = 0;
  int heads_ = 0;
  size_t head_stride_ = 0;
  AlignedBuffer storage_{BufferMemory::mapped};
};

/// How threads share the work of a call: by rows; by columns of the weights (for large models and few rows); or by rows in two halves that
/// take turns (for rows that only decode; other rows are split by rows). The bits are the same.
enum class Split { as_fits, by_rows, by_columns, in_turns };

/// Writes keys and values of all feeds and the logits of the feeds that want them: logits [wanted, vocab], in feed order. Only one feed of
/// a call may write a block; other feeds of the call may read it. Throws std::invalid_argument on a token, position or block out of range,
/// before anything is written.
void extend(const Policy& policy, KvCache& cache, std::span<const Feed> feeds, float* logits, ThreadPool& pool,
            Split split = Split::as_fits);

}  // namespace longhaul
