// The backward pass of one fused linear layer: the gradient of its input, and the amounts that its rows add to the gradients of trained
// parameters.
#pragma once

#include "model/policy.h"
#include "backend/gradient_work.h"

namespace longhaul {

struct BackwardLinear {
  const ops::Panels* panels = nullptr;  // columns of W: [outputs, inputs]
  ParameterRange weight;
  /// True while adapters are trained: W is then frozen. `adapter` is null without adapters, or if this layer has none.
  bool frozen = false;
  const FusedAdapter* adapter = nullptr;
  const FusedAdapterPanels* adapter_panels = nullptr;
  float adapter_scale = 0;

  bool trained() const { return !frozen || adapter; }
  int inputs() const { return weight.columns; }
  /// Columns of `down` and `d_down`: parts · rank.
  int adapter_width() const { return adapter ? adapter->a.rows : 0; }
};

/// The right-hand sides of the products that give one linear layer's gradients.
struct PackedLinear {
  PackedRows x;
  /// [parts]: scale·x·Aᵀ for each part of the adapter.
  std::vector<PackedRows> down;

  /// Sets the sizes for this many rows; parts that are not trained take no memory.
  void resize(const BackwardLinear& linear, int rows);
  /// Writes rows [first, first + count) of x, and `rows_down` [count, adapter_width].
  void write(const BackwardLinear& linear, const float* rows_x, size_t ld_x, const float* rows_down, int first, int count);
};

struct BackwardLinears {
  BackwardLinear qkv, output, gate_up, down;
};

/// Packed weights and adapters, in the order that backward passes read them.
struct BackwardPanels {
  WeightPanels weights;
  std::vector<LayerAdapterPanels> adapters;
};

/// Views, valid until weights or panels change.
BackwardLinears backward_linears(const Policy& policy, const BackwardPanels& panels, int layer);

/// dx [rows, ld_dx] = dy·W + d_down·A unless dx is null; d_down [rows, adapter_width] = scale·dy·B if there is an adapter.
void apply_backward(const ops::Table& op, const BackwardLinear& linear, const float* dy, size_t ld_dy, float* dx, size_t ld_dx,
                    int rows, float* d_down);

/// Adds to the work: dW = dyᵀ·x, or with adapters dA = d_downᵀ·x and dB = dyᵀ·down (`down` = scale·x·Aᵀ). `dy` [rows of x, ld_dy], `d_down`
/// [rows of x, adapter_width].
void add_gradients(GradientWork& work, const BackwardLinear& linear, float* gradients, const float* dy, size_t ld_dy,
                   const PackedLinear& x, const float* d_down);

}  // namespace longhaul
