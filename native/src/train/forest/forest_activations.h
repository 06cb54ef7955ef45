// The buffers of the passes over a forest, and their sizes. memory_plan adds up the same sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/policy.h"
#include "train/backward_linear.h"

namespace longhaul {

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

/// x·Aᵀ of the four linear layers, or its gradient.
struct AdapterBuffers {
  AlignedBuffer qkv{BufferMemory::mapped}, output{BufferMemory::mapped}, gate_up{BufferMemory::mapped},
      down{BufferMemory::mapped};
};

/// Activations that the backward pass of one layer reads. In the last layer, the buffers after attention hold only the rows that targets
/// read (outputs).
struct LayerActivations {
  AlignedBuffer qkv{BufferMemory::mapped};            // [rows, qkv_width], after norms and rotation
  AlignedBuffer heads_saved{BufferMemory::mapped};    // [rows, query_width + key_value_width], before norms; only with head norms
  AlignedBuffer heads_inverse;                        // [rows, heads + kv_heads]
  AlignedBuffer attention{BufferMemory::mapped};      // [rows, query_width]
  AlignedBuffer log_sums;                             // [rows, heads]
  AlignedBuffer middle{BufferMemory::mapped};         // [rows, hidden], between attention and MLP
  AlignedBuffer gate_up{BufferMemory::mapped};        // [rows, 2 · intermediate]
  AdapterBuffers adapter_down;                        // scale · x·Aᵀ
};

/// Buffers from which, together with activations, the gradients of one piece are computed.
struct PieceSpace {
  AlignedBuffer d_output;   // [512, hidden]: gradient of the MLP's output
  AlignedBuffer d_gate_up;  // [512, 2 · intermediate]
  AdapterBuffers d_adapter_down;
  PackedLinear qkv, output, gate_up, down;
  // Sums over blocks of 64 rows.
  AlignedBuffer norm_blocks, final_norm_blocks, head_norm_blocks, bias_blocks;
};

/// Working memory of one thread for one tile of rows.
struct TileSpace {
  AlignedBuffer normed, middle, gate_up, activated, output, d_activated, d_normed, inverse, adapter_down;
  std::vector<int32_t> chain;
};

/// The calling thread's TileSpace.
inline TileSpace& tile_space() {
  static thread_local TileSpace space;
  return space;
}

}  // namespace longhaul
