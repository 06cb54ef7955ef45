// The KV cache in device memory.
#pragma once

#include "cuda/kernels/attention/cache_blocks.h"
#include "cuda/host/buffer.h"
#include "model/inference/feed.h"

namespace longhaul::cuda {

class DeviceCache final : public BlockCache {
 public:
  DeviceCache(const Architecture& architecture, int block_capacity, Stream stream);

  static size_t block_bytes(const Architecture& architecture);

  void copy_block(int from, int to) override { cuda::copy_block(blocks_, from, to, stream_); }
  const CacheBlocks& blocks() const { return blocks_; }

 private:
  Stream stream_;
  CacheBlocks blocks_;
  DeviceArray<float> memory_;
};

}  // namespace longhaul::cuda
