// The backward pass of one fused linear layer: its input's gradient, and what its rows add to the gradients of what is trained.
#pragma once

#include "model/policy.h"
#include "train/gradient_work.h"

namespace longhaul {

struct BackwardLinear {
  const ops::Panels* panels = nullptr;  // columns of W: [outputs, inputs]
  ParameterRange weight;
  /// W is frozen while adapters are trained. `adapter` is also null if this layer has none.
  bool frozen = false;
  const FusedAdapter* adapter = nullptr;
  const FusedAdapterPanels* adapter_panels = nullptr;
  float adapter_scale = 0;

  bool trained() const { return !frozen || adapter; }
  int inputs() const { return weight.columns; }
  /// Columns of `down` and `d_down`: parts · rank.
  int adapter_width() const { return adapter ? adapter->a.rows : 0; }
};

/// What the gradients of one linear layer are products with.
struct PackedLinear {
  PackedRows x;
  /// [parts] of scale·x·Aᵀ, one for each part of the adapter.
  std::vector<PackedRows> down;

  /// For so many rows; what is not trained takes nothing.
  void resize(const BackwardLinear& linear, int rows);
  /// Rows [first, first + count) of x and of `rows_down` [count, adapter_width].
  void write(const BackwardLinear& linear, const float* rows_x, size_t ld_x, const float* rows_down, int first, int count);
};

struct BackwardLinears {
  BackwardLinear qkv, output, gate_up, down;
};

/// Panels of what a policy trains and of what lies under it, in the order that backward passes read.
struct BackwardPanels {
  WeightPanels weights;
  std::vector<LayerAdapterPanels> adapters;
};

/// Views, valid until weights or panels change.
BackwardLinears backward_linears(const Policy& policy, const BackwardPanels& panels, int layer);

/// dx [rows, ld_dx] = dy·W + d_down·A, if dx is not null; d_down [rows, adapter_width] = scale·dy·B, if there is an adapter.
void apply_backward(const ops::Table& op, const BackwardLinear& linear, const float* dy, size_t ld_dy, float* dx, size_t ld_dx,
                    int rows, float* d_down);

/// Adds dW = dyᵀ·x, or with adapters dA = d_downᵀ·x and dB = dyᵀ·down (`down` = scale·x·Aᵀ) to the work; `dy` [rows of x, ld_dy],
/// `d_down` [rows of x, adapter_width].
void add_gradients(GradientWork& work, const BackwardLinear& linear, float* gradients, const float* dy, size_t ld_dy,
                   const PackedLinear& x, const float* d_down);

}  // namespace longhaul
