#include "cuda/kernels/attention/cache_blocks.h"

#include <stdexcept>

#include "cuda/device/device.h"

namespace longhaul::cuda {
namespace {

constexpr int copy_threads = 256;

unsigned blocks_of(size_t items) { return unsigned((items + copy_threads - 1) / copy_threads); }

/// A thread copies four floats of a key and of its value.
__global__ void __launch_bounds__(copy_threads)
    store_rows(StoreKeysValues args, float* layer, size_t block_stride, size_t head_stride, size_t value_offset) {
  const int head_dim = args.cache.head_dim, kv_heads = args.cache.kv_heads, quads = kv_heads * (head_dim / 4);
  const size_t item = size_t(blockIdx.x) * copy_threads + threadIdx.x;
  if (item >= size_t(args.rows) * quads) return;
  const int row = int(item / quads), column = int(item % quads) * 4, head = column / head_dim;
  const int place = args.places[row];
  const float* key = args.qkv + size_t(row) * args.ld_qkv + size_t(args.heads) * head_dim + column;
  float* to = layer + size_t(place / block_positions) * block_stride + size_t(head) * head_stride +
              size_t(place % block_positions) * head_dim + column % head_dim;
  store(to, load<float4>(key));
  store(to + value_offset, load<float4>(key + size_t(kv_heads) * head_dim));
}

__global__ void __launch_bounds__(copy_threads) copy_quads(const float* from, float* to, size_t quads) {
  const size_t i = size_t(blockIdx.x) * copy_threads + threadIdx.x;
  if (i < quads) store(to + 4 * i, load<float4>(from + 4 * i));
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(float4) == 0; }

}  // namespace

void store_keys_values(const StoreKeysValues& args, Stream stream) {
  const CacheBlocks& cache = args.cache;
  if (cache.head_dim < 16 || cache.head_dim % 16 != 0 || args.ld_qkv % 4 != 0 || !aligned(args.qkv) || !aligned(cache.memory))
    throw std::invalid_argument("store_keys_values: head_dim must be a multiple of 16, and rows and blocks 16-byte aligned");
  if (args.rows == 0) return;
  const size_t quads = size_t(args.rows) * cache.kv_heads * (cache.head_dim / 4);
  launch(store_rows, dim3(blocks_of(quads)), dim3(copy_threads), 0, stream, args, cache.layer(args.layer), cache.block_stride(),
         cache.head_stride(), cache.value_offset());
}

void copy_block(const CacheBlocks& cache, int from, int to, Stream stream) {
  if (from == to) return;
  const size_t stride = cache.block_stride(), quads = stride / 4;
  launch(copy_quads, dim3(blocks_of(quads)), dim3(copy_threads), 0, stream, static_cast<const float*>(cache.memory + size_t(from) * stride),
         cache.memory + size_t(to) * stride, quads);
}

}  // namespace longhaul::cuda
