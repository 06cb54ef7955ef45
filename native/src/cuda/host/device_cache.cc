#include "cuda/host/device_cache.h"

namespace longhaul::cuda {

namespace {

static_assert(block_positions == longhaul::block_positions);

CacheBlocks blocks_of(const Architecture& architecture) {
  return {nullptr, architecture.num_hidden_layers, architecture.num_key_value_heads, architecture.head_dim};
}

}  // namespace

DeviceCache::DeviceCache(const Architecture& architecture, int block_capacity, Stream stream)
    : BlockCache(block_capacity), stream_(stream), blocks_(blocks_of(architecture)) {
  memory_ = DeviceArray<float>(size_t(block_capacity) * blocks_.block_stride());
  blocks_.memory = memory_.data();
#ifdef LONGHAUL_GPU
  // A block may be copied before it is full, which compute-sanitizer would take for a fault. (The emulated device keeps its NaN.)
  device_zero(memory_.data(), memory_.size(), stream);
#endif
}

size_t DeviceCache::block_bytes(const Architecture& architecture) { return blocks_of(architecture).block_stride() * sizeof(float); }

}  // namespace longhaul::cuda
