// Gradients of attention over the chains of a forest, with the bits of cpu/attention_kernels.h: one kernel for queries and one for keys and
// values, all nodes of a pass in one launch, no atomics.
//
// The gradient of a key is added up as on the CPU. A segment (the rows of a node within a pass) that sees the key gives one sum: a chain
// from 0 over its queries in order and, for each query, over its heads in order. These sums are added to `d_keys_values` one after another,
// in the canonical order of the segments (pass/forest_pass.h). One block of threads owns 32 keys and does all of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/kernels/attention/attention.h"

namespace longhaul::cuda {

/// A segment of a forest: the keys of its rows, and its queries.
struct ForestSegment {
  int parent;       // index of the segment before it in the chain, or −1
  int first_row;    // row of its first key and value
  int rows;
  int place;        // number of its first key in the chain
  int first_query;  // its queries in this pass, in order of their places
  int queries;
};

/// Neighbouring keys of one segment, and the segments whose queries see them.
struct KeyTile {
  int32_t first_row, rows;        // rows of `d_keys_values`, at most 32
  int32_t first_place;            // number of the first key in its chain
  int32_t first_reader, readers;  // in `KeyTiles::readers`
};

struct KeyReader {
  int32_t first_query, queries;  // at least one query
};

struct KeyTiles {
  std::vector<KeyTile> tiles;
  std::vector<KeyReader> readers;
};

/// The keys that have a gradient in a pass. `order` has the pass's segments in the canonical order in which they add to it; ancestors may
/// belong to earlier passes.
KeyTiles key_tiles(std::span<const ForestSegment> segments, std::span<const int> order);

/// Bytes of shared memory of a block of threads; attention forward takes less.
inline size_t attention_shared_bytes(int head_dim) {
  const size_t rows = size_t(many_tile_rows) * head_dim, keys = size_t(32) * (head_dim + 4), weights = size_t(many_tile_rows) * 32;
  return sizeof(float) * (2 * (rows + keys + weights) + 3 * size_t(many_tile_rows));
}

struct AttentionBackward {
  /// As in the forward pass, with its `out` and `log_sums`; the past is a `chain_past`, and tiles have `many_tile_rows`.
  Attention forward;
  const float* d_out;          // [outputs, heads · head_dim]
  float* pulls;                // [outputs, heads]: work space
  float* d_queries;            // [.., ld_qkv], added to
  float* d_keys_values;        // laid out as the past's rows, added to
  const KeyTile* key_tiles;    // [key_tile_count]
  int key_tile_count;
  const KeyReader* readers;
};

/// Throws std::invalid_argument for shapes or alignments that it does not support.
void attention_backward(const AttentionBackward& backward, Stream stream);

namespace testing {

/// Leaves out barrier `fault`, 1 to `attention_backward_faults`; 0: none.
void attention_backward(const AttentionBackward& backward, Stream stream, int fault);
inline constexpr int attention_backward_faults = 7;

}  // namespace testing

}  // namespace longhaul::cuda
