// One fused linear layer as forward passes see it: frozen or trained matrix, bias, adapters.
#pragma once

#include "model/policy.h"

namespace longhaul {

struct Linear {
  const ops::Panels* panels = nullptr;  // forward, [inputs, outputs]
  const float* bias = nullptr;          // [outputs], or null
  // Null without adapters.
  const FusedAdapter* adapter = nullptr;
  const FusedAdapterPanels* adapter_panels = nullptr;
  float adapter_scale = 0;

  int inputs() const { return panels->depth; }
  int outputs() const { return panels->columns; }
  /// Floats that `apply` needs in `down_out` for each row: parts · rank (0 without adapters).
  int adapter_width() const { return adapter ? adapter->a.rows : 0; }
};

struct LayerLinears {
  Linear qkv, output, gate_up, down;
};

/// Views into the policy, valid until its weights change.
LayerLinears linears(const Policy& policy, int layer);

/// y [rows, ldy] (+)= x [rows, ldx]·Wᵀ + bias + scale·(x·Aᵀ)·Bᵀ. `down_out` [rows, adapter_width] receives scale·(x·Aᵀ), which the backward
/// pass needs. Runs on one thread; a row's bits depend only on that row.
void apply(const ops::Table& op, const Linear& linear, const float* x, size_t ldx, float* y, size_t ldy, int rows,
           bool accumulate, float* down_out);

/// `apply` in three steps, for callers that share the product with W among threads by columns: `adapt_down` fills `down_out`, then the
/// caller adds y (+)= x·Wᵀ, then `finish` adds bias and adapters to y.
void adapt_down(const ops::Table& op, const Linear& linear, const float* x, size_t ldx, int rows, float* down_out);
void finish(const ops::Table& op, const Linear& linear, const float* down_out, float* y, size_t ldy, int rows);

}  // namespace longhaul
