// Operations on rows: norms, rotary embedding, SwiGLU, AdamW. Widths are multiples of 16.
#pragma once

#include "cpu/vec16.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

inline float norm_row(const float* x, const float* weight, float eps, float* y, int width) {
  const float inverse = 1.0f / __builtin_sqrtf(dot(x, x, width) / float(width) + eps);
  const Vec scale = broadcast(inverse);
  for (int i = 0; i < width; i += lanes) store(y + i, mul(mul(load(x + i), scale), load(weight + i)));
  return inverse;
}

// dx (+)= r·w·dy − x·r³·mean(w·dy·x);  dw += dy·x·r
template <bool Accumulate>
inline void norm_row_backward(const float* x, const float* weight, float inverse, const float* dy, float* dx,
                              float* d_weight, int width) {
  Vec projection = zeros();
  for (int i = 0; i < width; i += lanes) projection = fma(mul(load(dy + i), load(weight + i)), load(x + i), projection);
  const Vec scale = broadcast(inverse);
  const Vec pull = broadcast(sum(projection) * inverse * inverse * inverse / float(width));
  for (int i = 0; i < width; i += lanes) {
    const Vec row = load(x + i), gradient = load(dy + i);
    const Vec direct = sub(mul(mul(gradient, load(weight + i)), scale), mul(row, pull));
    store(d_weight + i, fma(gradient, mul(row, scale), load(d_weight + i)));
    store(dx + i, Accumulate ? add(load(dx + i), direct) : direct);
  }
}

void rms_norm(const float* x, const float* weight, float eps, float* y, float* inverse_rms, int rows, int width) {
  for (int i = 0; i < rows; ++i) {
    const float inverse = norm_row(x + size_t(i) * width, weight, eps, y + size_t(i) * width, width);
    if (inverse_rms) inverse_rms[i] = inverse;
  }
}

void rms_norm_backward(const float* x, const float* weight, const float* inverse_rms, const float* dy, float* dx,
                       float* d_weight, int rows, int width) {
  for (int i = 0; i < rows; ++i) {
    const size_t row = size_t(i) * width;
    norm_row_backward<true>(x + row, weight, inverse_rms[i], dy + row, dx + row, d_weight, width);
  }
}

// Pairs (i, i + width/2), rotated by the position's angle; direction −1 is the transpose.
inline void rotate(float* x, const float* cos, const float* sin, int width, float direction) {
  const int half = width / 2;
  const Vec sign = broadcast(direction);
  for (int i = 0; i < half; i += lanes) {
    const Vec c = load(cos + i), s = mul(load(sin + i), sign), a = load(x + i), b = load(x + half + i);
    store(x + i, sub(mul(a, c), mul(b, s)));
    store(x + half + i, add(mul(b, c), mul(a, s)));
  }
}

void head_norm_rope(float* x, size_t ldx, const float* weight, float eps, const int32_t* positions, const float* cos,
                    const float* sin, float* saved, size_t ld_saved, float* inverse_rms, size_t ld_inverse, int rows,
                    int heads, int head_dim) {
  for (int i = 0; i < rows; ++i) {
    const size_t angle = size_t(positions[i]) * (head_dim / 2);
    for (int h = 0; h < heads; ++h) {
      float* head = x + i * ldx + size_t(h) * head_dim;
      if (saved)
        __builtin_memcpy(saved + i * ld_saved + size_t(h) * head_dim, head, size_t(head_dim) * sizeof(float));
      const float inverse = norm_row(head, weight, eps, head, head_dim);
      if (inverse_rms) inverse_rms[i * ld_inverse + h] = inverse;
      rotate(head, cos + angle, sin + angle, head_dim, 1.0f);
    }
  }
}

void head_norm_rope_backward(float* dx, size_t ldx, const float* weight, const int32_t* positions, const float* cos,
                             const float* sin, const float* saved, size_t ld_saved, const float* inverse_rms,
                             size_t ld_inverse, float* d_weight, int rows, int heads, int head_dim) {
  for (int i = 0; i < rows; ++i) {
    const size_t angle = size_t(positions[i]) * (head_dim / 2);
    for (int h = 0; h < heads; ++h) {
      float* head = dx + i * ldx + size_t(h) * head_dim;
      rotate(head, cos + angle, sin + angle, head_dim, -1.0f);
      norm_row_backward<false>(saved + i * ld_saved + size_t(h) * head_dim, weight, inverse_rms[i * ld_inverse + h], head,
                               head, d_weight, head_dim);
    }
  }
}

inline Vec sigmoid(Vec x) { return div(broadcast(1.0f), add(broadcast(1.0f), exponential(sub(zeros(), x)))); }

void swiglu(const float* gate_up, float* y, int rows, int f) {
  for (int r = 0; r < rows; ++r) {
    const float* gate = gate_up + size_t(r) * 2 * f;
    const float* up = gate + f;
    for (int i = 0; i < f; i += lanes) {
      const Vec g = load(gate + i);
      store(y + size_t(r) * f + i, mul(mul(g, sigmoid(g)), load(up + i)));
    }
  }
}

void swiglu_backward(const float* gate_up, const float* dy, float* d_gate_up, int rows, int f) {
  const Vec one = broadcast(1.0f);
  for (int r = 0; r < rows; ++r) {
    const float* gate = gate_up + size_t(r) * 2 * f;
    float* d_gate = d_gate_up + size_t(r) * 2 * f;
    for (int i = 0; i < f; i += lanes) {
      const Vec g = load(gate + i), up = load(gate + f + i), d = load(dy + size_t(r) * f + i);
      const Vec s = sigmoid(g), ds = mul(d, s);
      store(d_gate + i, mul(mul(ds, up), fma(g, sub(one, s), one)));
      store(d_gate + f + i, mul(ds, g));
    }
  }
}

void add_into(float* a, const float* b, size_t n) {
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(a + i, add(load(a + i), load(b + i)));
  for (; i < n; ++i) a[i] = a[i] + b[i];
}

double sum_of_squares(const float* x, size_t n) {
  constexpr size_t block = 4096;
  double total = 0;
  for (size_t begin = 0; begin < n; begin += block) {
    const size_t end = begin + block < n ? begin + block : n;
    Vec squares = zeros();
    size_t i = begin;
    for (; i + lanes <= end; i += lanes) squares = fma(load(x + i), load(x + i), squares);
    if (i < end) {
      const Vec rest = load_first(x + i, int(end - i), 0.0f);
      squares = fma(rest, rest, squares);
    }
    total += double(sum(squares));
  }
  return total;
}

void adamw(const AdamStep& step, float* weights, float* first, float* second, const float* gradients, size_t n) {
  const Vec scale = broadcast(step.gradient_scale), beta1 = broadcast(step.beta1), beta2 = broadcast(step.beta2);
  const Vec rest1 = broadcast(step.one_minus_beta1), rest2 = broadcast(step.one_minus_beta2);
  const Vec correction1 = broadcast(step.correction1), correction2 = broadcast(step.correction2);
  const Vec rate = broadcast(-step.learning_rate), eps = broadcast(step.eps), decay = broadcast(step.weight_decay);
  for (size_t i = 0; i < n; i += lanes) {
    const Vec g = mul(load(gradients + i), scale);
    const Vec m = fma(beta1, load(first + i), mul(rest1, g));
    const Vec v = fma(beta2, load(second + i), mul(rest2, mul(g, g)));
    const Vec w = load(weights + i);
    const Vec direction = div(div(m, correction1), add(square_root(div(v, correction2)), eps));
    store(first + i, m);
    store(second + i, v);
    store(weights + i, fma(rate, fma(decay, w, direction), w));
  }
}

}  // namespace
}  // namespace longhaul::ops
