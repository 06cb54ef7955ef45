// A fused linear layer, its adapters and their gradients, over the products of a device: y (+)= x·Wᵀ + bias + scale·(x·Aᵀ)·Bᵀ.
#pragma once

#include <array>
#include <vector>

#include "model/adapters.h"
#include "pass/rows.h"

namespace longhaul {

/// The linear layers of a layer.
enum class Part { qkv, output, gate_up, down };
constexpr Part all_parts[] = {Part::qkv, Part::output, Part::gate_up, Part::down};

/// That of one part, in what a layer has for each.
auto& part_of(auto& all, Part part) {
  switch (part) {
    case Part::qkv: return all.qkv;
    case Part::output: return all.output;
    case Part::gate_up: return all.gate_up;
    default: return all.down;
  }
}

/// `Weight` is a matrix as the device's products read it.
template <class Weight>
struct Linear {
  ParameterRange range;
  Weight weight{};
  const float* bias = nullptr;  // [outputs], or null
  /// True while adapters are trained: W is then frozen. `adapter` is null without adapters, or if this layer has none.
  bool frozen = false;
  const FusedAdapter* adapter = nullptr;
  float adapter_scale = 0;
  Weight a{};
  std::array<Weight, 3> b{};  // of the adapter's parts

  bool trained() const { return !frozen || adapter; }
  int inputs() const { return range.columns; }
  int outputs() const { return range.rows; }
  /// Columns of scale·(x·Aᵀ): parts · rank (0 without adapters).
  int adapter_width() const { return adapter ? adapter->a.rows : 0; }
};

template <class Weight>
struct Linears {
  Linear<Weight> qkv, output, gate_up, down;
};

/// Views of all layers' matrices: weight_of(layer, part), bias_of(range), and with adapters (null: none) a_of(layer, part) and
/// b_of(layer, part, i).
template <class Weight>
std::vector<Linears<Weight>> linears_of(const ParameterLayout& layout, const AdapterLayout* adapters, float scale, auto&& weight_of,
                                        auto&& bias_of, auto&& a_of, auto&& b_of) {
  std::vector<Linears<Weight>> all(layout.layers.size());
  for (size_t layer = 0; layer < all.size(); ++layer) {
    for (const Part part : all_parts) {
      Linear<Weight>& linear = part_of(all[layer], part);
      linear.range = part_of(layout.layers[layer], part);
      linear.weight = weight_of(layer, part);
      linear.frozen = adapters != nullptr;
      if (!adapters || part_of(adapters->layers[layer], part).empty()) continue;
      linear.adapter = &part_of(adapters->layers[layer], part);
      linear.adapter_scale = scale;
      linear.a = a_of(layer, part);
      for (size_t i = 0; i < linear.adapter->parts.size(); ++i) linear.b[i] = b_of(layer, part, i);
    }
    if (!layout.layers[layer].qkv_bias.empty()) all[layer].qkv.bias = bias_of(layout.layers[layer].qkv_bias);
  }
  return all;
}

/// `apply` in three steps, for callers that compute the product with W in another way: `adapt_down` fills `down`, then the caller adds
/// y (+)= x·Wᵀ, then `finish` adds bias and adapters to y.
template <class T>
void adapt_down(auto& device, const auto& linear, Matrix<const T> x, T* down, int rows) {
  if (!linear.adapter) return;
  const Matrix<T> to{down, size_t(linear.adapter_width())};
  device.product(linear.a, x, to, rows, false);
  device.scale(to, linear.adapter_scale, rows, linear.adapter_width());
}

template <class T>
void finish(auto& device, const auto& linear, const T* down, Matrix<T> y, int rows) {
  if (linear.bias) device.add_bias(y, linear.bias, rows, linear.outputs());
  if (!linear.adapter) return;
  // The chain of multiply-adds of each output element continues from the frozen matrix's result.
  const size_t width = size_t(linear.adapter_width());
  for (size_t i = 0; i < linear.adapter->parts.size(); ++i) {
    const AdapterPart& part = linear.adapter->parts[i];
    device.product(linear.b[i], Matrix<const T>{down + i * size_t(part.b.columns), width}, Matrix<T>{y.data + part.first_output, y.ld},
                   rows, true);
  }
}

/// `down` [rows, adapter_width] receives scale·(x·Aᵀ), which the backward pass needs. A row's bits depend only on that row.
template <class T>
void apply(auto& device, const auto& linear, Matrix<const T> x, Matrix<T> y, int rows, bool accumulate, T* down) {
  if (rows == 0) return;
  device.product(linear.weight, x, y, rows, accumulate);
  adapt_down(device, linear, x, down, rows);
  finish<T>(device, linear, down, y, rows);
}

/// dx [rows, inputs] = dy·W + d_down·A unless dx is null; d_down [rows, adapter_width] = scale·dy·B if there is an adapter.
template <class T>
void apply_backward(auto& device, const auto& linear, Matrix<const T> dy, T* dx, int rows, T* d_down) {
  if (rows == 0) return;
  const Matrix<T> to{dx, size_t(linear.inputs())};
  if (dx) device.product_backward(linear.weight, dy, to, rows, false);
  if (!linear.adapter) return;
  const size_t width = size_t(linear.adapter_width());
  for (size_t i = 0; i < linear.adapter->parts.size(); ++i) {
    const AdapterPart& part = linear.adapter->parts[i];
    device.product_backward(linear.b[i], Matrix<const T>{dy.data + part.first_output, dy.ld},
                            Matrix<T>{d_down + i * size_t(part.b.columns), width}, rows, false);
  }
  device.scale(Matrix<T>{d_down, width}, linear.adapter_scale, rows, int(width));
  if (dx) device.product_backward(linear.a, Matrix<const T>{d_down, width}, to, rows, true);
}

/// Calls add(range, left, i) for each matrix that is trained: its gradient += leftᵀ·x, or with i ≥ 0 leftᵀ·(part i of `down`).
template <class T>
void each_gradient(const auto& linear, Matrix<const T> dy, const T* d_down, auto&& add) {
  if (!linear.frozen) return add(linear.range, dy, -1);
  if (!linear.adapter) return;
  add(linear.adapter->a, Matrix<const T>{d_down, size_t(linear.adapter_width())}, -1);
  for (size_t i = 0; i < linear.adapter->parts.size(); ++i) {
    const AdapterPart& part = linear.adapter->parts[i];
    add(part.b, Matrix<const T>{dy.data + part.first_output, dy.ld}, int(i));
  }
}

}  // namespace longhaul
