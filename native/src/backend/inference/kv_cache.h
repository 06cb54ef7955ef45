// The KV cache in a CPU's memory.
#pragma once

#include <cstddef>

#include "base/aligned_buffer.h"
#include "model/inference/feed.h"

namespace longhaul {

/// The capacity is only address space: a block takes memory when it is first written. So allocate low ids first: a cache costs as much as
/// the highest block ever used. Addresses never move.
class KvCache final : public BlockCache {
 public:
  /// Throws std::bad_alloc if even the address space is not available.
  KvCache(const Architecture& architecture, int block_capacity);

  static size_t block_bytes(const Architecture& architecture);

  /// Keys of one block, layer and KV head: [head_dim, 32 positions]; then its values: [⌈head_dim / 32⌉, 32 positions, 32], zero past
  /// head_dim.
  float* keys(int block, int layer, int head) {
    return storage_.data() + size_t(block) * block_stride_ + (size_t(layer) * heads_ + size_t(head)) * head_stride_;
  }

  /// Stride from one block to the next, and from one KV head to the next, in floats.
  size_t block_stride() const { return block_stride_; }
  size_t head_stride() const { return head_stride_; }

  void copy_block(int from, int to) override;

 private:
  size_t heads_, head_stride_, block_stride_;
  AlignedBuffer storage_{BufferMemory::mapped};
};

}  // namespace longhaul
