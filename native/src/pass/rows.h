// The buffers of the passes over a forest, and their sizes. memory_plan adds up the same sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/policy.h"

namespace longhaul {

/// Consecutive rows or outputs of a pass, or targets of a chunk.
struct RowRange {
  int first = 0, count = 0;
};

/// Rows that begin `ld` values apart.
template <class T>
struct Matrix {
  T* data;
  size_t ld;
};

/// Lists of rows: list i has the rows indices[starts[i]] to indices[starts[i + 1] − 1]; without `indices`, starts[i] to starts[i + 1] − 1.
struct RowLists {
  const int32_t* starts;
  const int32_t* indices;
  int count;
};

/// Rows in one partial sum of the gradient of a norm or bias.
constexpr int norm_block_rows = 64;

/// Most bytes of logits that exist at once.
constexpr size_t head_bytes = size_t{64} << 20;

/// Rows that memory is allocated for. Rounded up, so that forests of slowly growing size do not ask for fresh pages each time.
inline size_t rounded_rows(int rows) {
  const int unit = rows <= 512 ? 64 : 512;
  return size_t(rows + unit - 1) / unit * unit;
}

/// Most rows of logits that exist at once.
inline int head_capacity(const Architecture& architecture, int threads) {
  const size_t fitting = head_bytes / (size_t(architecture.vocab_size) * sizeof(float));
  const size_t bounded = fitting < 512 ? fitting / 64 * 64 : fitting / 512 * 512;
  return int(std::max(bounded, rounded_rows(24 * threads)));
}

/// Floats of one row in each buffer.
struct RowWidths {
  size_t hidden, qkv, query, keys_values, heads, saved, inverse, ffn, adapters;

  RowWidths(const Architecture& architecture, const LoraSettings* lora)
      : hidden(size_t(architecture.hidden_size)),
        qkv(size_t(architecture.qkv_width())),
        query(size_t(architecture.query_width())),
        keys_values(size_t(2) * architecture.key_value_width()),
        heads(size_t(architecture.num_attention_heads)),
        saved(architecture.has_head_norms() ? query + keys_values / 2 : 0),
        inverse(architecture.has_head_norms() ? heads + size_t(architecture.num_key_value_heads) : 0),
        ffn(size_t(architecture.intermediate_size)),
        adapters(lora ? lora->targets.size() * size_t(lora->rank) : 0) {}

  /// Values that a layer keeps for its backward pass, besides its input.
  size_t layer() const { return qkv + saved + inverse + query + heads + hidden + 2 * ffn + adapters; }
  /// Values that a layer keeps if no backward pass follows.
  size_t forward_layer() const { return qkv + query; }
  /// After the last layer: the row before and after the final norm, and 1 / rms.
  size_t final() const { return 2 * hidden + 1; }
  /// Backward pass: gradients of the hidden state (in two buffers: after the last layer they are scattered), attention, and qkv.
  size_t backward() const { return 2 * hidden + query + qkv; }
  /// One of the two pieces that are computed at once: gradients, and the right-hand sides of their products.
  size_t piece() const { return 3 * hidden + 3 * ffn + query + 2 * adapters; }
};

}  // namespace longhaul
