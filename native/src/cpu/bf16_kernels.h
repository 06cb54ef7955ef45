// Operations whose results are bf16 numbers: computed in fp32 by the kernels of fp32, and rounded once.
#pragma once

#include "cpu/head_kernels.h"
#include "cpu/row_kernels.h"
#include "cpu/tensor_core_attention.h"

namespace longhaul::ops {
namespace {

void round_rows(float* x, size_t ldx, int rows, int columns) {
  for (int i = 0; i < rows; ++i, x += ldx)
    for (int j = 0; j < columns; ++j) x[j] = rounded_to_bf16(x[j]);
}

void bf16_rms_norm(const float* x, const float* weight, float eps, float* y, float* inverse_rms, int rows, int width) {
  rms_norm(x, weight, eps, y, inverse_rms, rows, width);
  round_rows(y, size_t(width), rows, width);
}

void bf16_rms_norm_backward(const float* x, const float* weight, const float* inverse_rms, const float* dy, float* dx, float* d_weight,
                            int rows, int width) {
  rms_norm_backward(x, weight, inverse_rms, dy, dx, d_weight, rows, width);
  round_rows(dx, size_t(width), rows, width);
}

void bf16_head_norm_rope(float* x, size_t ldx, const float* weight, float eps, const int32_t* positions, const float* cos, const float* sin,
                         float* saved, size_t ld_saved, float* inverse_rms, size_t ld_inverse, int rows, int heads, int head_dim) {
  head_norm_rope(x, ldx, weight, eps, positions, cos, sin, saved, ld_saved, inverse_rms, ld_inverse, rows, heads, head_dim);
  round_rows(x, ldx, rows, heads * head_dim);
}

void bf16_head_norm_rope_backward(float* dx, size_t ldx, const float* weight, const int32_t* positions, const float* cos, const float* sin,
                                  const float* saved, size_t ld_saved, const float* inverse_rms, size_t ld_inverse, float* d_weight, int rows,
                                  int heads, int head_dim) {
  head_norm_rope_backward(dx, ldx, weight, positions, cos, sin, saved, ld_saved, inverse_rms, ld_inverse, d_weight, rows, heads, head_dim);
  round_rows(dx, ldx, rows, heads * head_dim);
}

void bf16_swiglu(const float* gate_up, float* y, int rows, int f) {
  swiglu(gate_up, y, rows, f);
  round_rows(y, size_t(f), rows, f);
}

void bf16_swiglu_backward(const float* gate_up, const float* dy, float* d_gate_up, int rows, int f) {
  swiglu_backward(gate_up, dy, d_gate_up, rows, f);
  round_rows(d_gate_up, size_t(2) * size_t(f), rows, 2 * f);
}

void bf16_softmax_gradient(float* logits, int n, RowNormalizer normalizer, float inverse_temperature, int token, float scale) {
  softmax_gradient(logits, n, normalizer, inverse_temperature, token, scale);
  round_rows(logits, 0, 1, n);
}

void bf16_softmax_entropy_gradient(float* logits, int n, RowNormalizer normalizer, float inverse_temperature, int token, float scale,
                                   float entropy, float entropy_scale) {
  softmax_entropy_gradient(logits, n, normalizer, inverse_temperature, token, scale, entropy, entropy_scale);
  round_rows(logits, 0, 1, n);
}

}  // namespace
}  // namespace longhaul::ops
