// The order of operations in a layer's forward pass, for some rows: of training and of sampling, on every device.
#pragma once

#include <type_traits>

#include "pass/activations.h"
#include "pass/linear.h"

namespace longhaul {

/// Where scale·(x·Aᵀ) of some rows goes: to the buffer of all rows if their backward pass reads it.
template <class Device>
typename Device::Activation* down_rows(Device& device, Activations<Device>* kept, RowRange at, const auto& linear) {
  const size_t width = size_t(linear.adapter_width());
  return kept ? kept->row(at.first, width) : device.scratch().adapter_down.room(size_t(at.count) * width);
}

/// y (+)= a linear layer of x, on the calling thread.
template <class Device>
auto applied_by(Device& device) {
  return [&device](const auto& linear, auto x, auto y, int rows, bool accumulate, auto* down) {
    device.linear(linear, x, y, rows, accumulate, down);
  };
}

/// Queries, keys and values of hidden states x, before norms and rotation. `kept`: of x·Aᵀ, for a backward pass, or null.
template <class Device>
void project_rows(Device& device, int layer, RowRange at, const typename Device::Activation* x, typename Device::Activation* qkv,
                  std::type_identity_t<AdapterActivations<Device>>* kept, auto&& apply) {
  const Architecture& arch = device.architecture();
  const auto& linear = device.linears(layer).qkv;
  const size_t width = size_t(arch.hidden_size);
  auto* normed = device.scratch().normed.room(size_t(at.count) * width);
  device.rms_norm(x, device.layout().layers[size_t(layer)].input_norm, normed, nullptr, at.count);
  apply(linear, Matrix<const typename Device::Activation>{normed, width}, Matrix<typename Device::Activation>{qkv, size_t(arch.qkv_width())},
        at.count, false, down_rows(device, kept ? &kept->qkv : nullptr, at, linear));
}

/// Norms and rotation of queries and keys in place. `saved`, `inverse`: for a backward pass, or null.
template <class Device>
void rotate_rows(Device& device, int layer, typename Device::Activation* qkv, const int32_t* positions, int rows,
                 typename Device::Activation* saved, float* inverse) {
  const Architecture& arch = device.architecture();
  const LayerParameters& parameters = device.layout().layers[size_t(layer)];
  const int heads = arch.num_attention_heads, kv_heads = arch.num_key_value_heads;
  const size_t ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width()),
               ld_saved = query_width + size_t(arch.key_value_width()), ld_inverse = size_t(heads) + size_t(kv_heads);
  device.rotate({qkv, ld}, parameters.query_norm, positions, {saved, ld_saved}, {inverse, ld_inverse}, rows, heads);
  device.rotate({qkv + query_width, ld}, parameters.key_norm, positions, {saved ? saved + query_width : nullptr, ld_saved},
                {inverse ? inverse + heads : nullptr, ld_inverse}, rows, kv_heads);
}

/// The layer behind its attention. `middle`, which holds the layer's input, becomes the sum behind attention; `output` (which may be
/// `middle`) that behind the MLP, or is null if it is not wanted.
template <class Device>
void transform_rows(Device& device, int layer, RowRange at, const typename Device::Activation* attention, typename Device::Activation* middle,
                    typename Device::Activation* gate_up, typename Device::Activation* output,
                    std::type_identity_t<AdapterActivations<Device>>* kept, auto&& apply) {
  using Const = Matrix<const typename Device::Activation>;
  using Mutable = Matrix<typename Device::Activation>;
  const Architecture& arch = device.architecture();
  const auto& linears = device.linears(layer);
  const size_t rows = size_t(at.count), width = size_t(arch.hidden_size), ffn = size_t(arch.intermediate_size),
               query_width = size_t(arch.query_width());
  apply(linears.output, Const{attention, query_width}, Mutable{middle, width}, at.count, true,
        down_rows(device, kept ? &kept->output : nullptr, at, linears.output));
  auto* normed = device.scratch().normed.room(rows * width);
  device.rms_norm(middle, device.layout().layers[size_t(layer)].post_norm, normed, nullptr, at.count);
  apply(linears.gate_up, Const{normed, width}, Mutable{gate_up, 2 * ffn}, at.count, false,
        down_rows(device, kept ? &kept->gate_up : nullptr, at, linears.gate_up));
  if (!output) return;
  auto* activated = device.scratch().activated.room(rows * ffn);
  device.swiglu(gate_up, activated, at.count);
  if (output != middle) device.gather({middle, width}, nullptr, {output, width}, at.count, arch.hidden_size);
  apply(linears.down, Const{activated, ffn}, Mutable{output, width}, at.count, true,
        down_rows(device, kept ? &kept->down : nullptr, at, linears.down));
}

}  // namespace longhaul
