// The KV cache on the device: blocks of 32 positions, all layers of a block together. A layer and KV head has its keys [32, head_dim], then
// its values [32, head_dim]. (The CPU stores keys transposed, for its products.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/stream.h"

namespace longhaul::cuda {

/// Positions of a block, and keys that attention takes at once.
inline constexpr int block_positions = 32;

struct CacheBlocks {
  float* memory = nullptr;  // [blocks, block_stride()], 16-byte aligned
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;  // a multiple of 16

  /// Floats from the keys of a KV head to its values, to the next KV head, to the next layer, to the next block.
  size_t value_offset() const { return size_t(block_positions) * head_dim; }
  size_t head_stride() const { return 2 * value_offset(); }
  size_t layer_stride() const { return size_t(kv_heads) * head_stride(); }
  size_t block_stride() const { return size_t(layers) * layer_stride(); }
  /// Keys of the layer's first KV head in block 0.
  float* layer(int index) const { return memory + size_t(index) * layer_stride(); }
};

/// Copies keys and values of some rows to their places in the cache.
struct StoreKeysValues {
  CacheBlocks cache;
  int layer;
  const float* qkv;       // [rows, ld_qkv]: queries of all heads, keys, values
  size_t ld_qkv;          // a multiple of 4
  int rows;
  const int32_t* places;  // [rows], all different: block · 32 + position modulo 32
  int heads;
};

/// Throws std::invalid_argument for shapes or alignments that it does not support.
void store_keys_values(const StoreKeysValues& args, Stream stream);

/// Copies all layers of a block.
void copy_block(const CacheBlocks& cache, int from, int to, Stream stream);

}  // namespace longhaul::cuda
