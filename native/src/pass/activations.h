// Buffers of activations, in a device's memory.
#pragma once

#include "pass/rows.h"

namespace longhaul {

template <class Device>
using Activations = typename Device::template Buffer<typename Device::Activation>;

/// scale · x·Aᵀ of the four linear layers, or its gradient.
template <class Device>
struct AdapterActivations {
  Activations<Device> qkv, output, gate_up, down;

  void rows(int rows, const auto& linears) {
    qkv.rows(rows, size_t(linears.qkv.adapter_width()));
    output.rows(rows, size_t(linears.output.adapter_width()));
    gate_up.rows(rows, size_t(linears.gate_up.adapter_width()));
    down.rows(rows, size_t(linears.down.adapter_width()));
  }
};

/// What the backward pass of one layer reads. In the last layer, the buffers after attention hold only the rows that targets read (outputs).
template <class Device>
struct LayerActivations {
  Activations<Device> qkv;          // [rows, qkv_width], after norms and rotation
  Activations<Device> heads_saved;  // [rows, query_width + key_value_width], before norms; only with head norms
  typename Device::template Buffer<float> heads_inverse;  // [rows, heads + kv_heads]
  Activations<Device> attention;                          // [rows, query_width]
  typename Device::template Buffer<float> log_sums;       // [rows, heads]
  Activations<Device> middle;                             // [rows, hidden], between attention and MLP
  Activations<Device> gate_up;                            // [rows, 2 · intermediate]
  AdapterActivations<Device> adapter_down;
};

/// Working memory of one range of rows.
template <template <class> class Buffer, class Activation>
struct RowScratch {
  Buffer<Activation> normed, middle, attention, gate_up, activated, output, adapter_down, head, d_normed, d_activated;
  Buffer<float> inverse;
};

/// Attention of a pass's rows over their chains in one layer; in the last layer, of its outputs.
template <class Activation>
struct ForestAttention {
  bool of_outputs;
  const Activation* qkv;                 // [rows, qkv_width]
  Matrix<const Activation> keys_values;  // of all rows of the forest, or with a single pass those in qkv
  Activation* out;                       // [queries, query_width]
  float* log_sums;                       // [queries, heads], or null
};

template <class Activation>
struct ForestAttentionGradients {
  const Activation* d_out;    // [queries, query_width]
  Activation* d_qkv;          // [rows, qkv_width], whose queries are added to
  Activation* d_keys_values;  // as keys_values, added to
};

}  // namespace longhaul
