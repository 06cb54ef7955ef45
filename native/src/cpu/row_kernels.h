// Operations on rows: norms, rotary embedding, SwiGLU, biases. Widths are multiples of 16 unless said otherwise.
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

// dx (+)= r·w·dy − x·r³·mean(w·dy·x);  dw += dy·x·r unless dw is null
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
    if (d_weight) store(d_weight + i, fma(gradient, mul(row, scale), load(d_weight + i)));
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

// Rows may have any width: whole vectors first, then the remaining lanes.
void add_bias(float* c, size_t ldc, const float* bias, int rows, int columns) {
  for (int r = 0; r < rows; ++r) {
    float* row = c + size_t(r) * ldc;
    int i = 0;
    for (; i + lanes <= columns; i += lanes) store(row + i, add(load(row + i), load(bias + i)));
    if (i < columns)
      store_first(row + i, add(load_first(row + i, columns - i, 0.0f), load_first(bias + i, columns - i, 0.0f)), columns - i);
  }
}

void column_sums(const float* dy, size_t ld, int rows, int columns, float* out) {
  constexpr int together = 4 * lanes;
  int i = 0;
  for (; i + together <= columns; i += together) {
    Vec total[4];
    for (int v = 0; v < 4; ++v) total[v] = load(out + i + v * lanes);
    for (int r = 0; r < rows; ++r)
      for (int v = 0; v < 4; ++v) total[v] = add(total[v], load(dy + size_t(r) * ld + i + v * lanes));
    for (int v = 0; v < 4; ++v) store(out + i + v * lanes, total[v]);
  }
  for (; i < columns; i += lanes) {
    const int count = columns - i < lanes ? columns - i : lanes;
    Vec total = load_first(out + i, count, 0.0f);
    for (int r = 0; r < rows; ++r) total = add(total, load_first(dy + size_t(r) * ld + i, count, 0.0f));
    store_first(out + i, total, count);
  }
}

void scale_rows(float* x, size_t ldx, float factor, int rows, int columns) {
  const Vec f = broadcast(factor);
  for (int r = 0; r < rows; ++r) {
    float* row = x + size_t(r) * ldx;
    int i = 0;
    for (; i + lanes <= columns; i += lanes) store(row + i, mul(load(row + i), f));
    if (i < columns) store_first(row + i, mul(load_first(row + i, columns - i, 0.0f), f), columns - i);
  }
}

// Rotates the pairs (i, i + width/2) by the angle of the row's position; direction −1 is the transpose. Half the width need not be a
// multiple of 16.
inline void rotate(float* x, const float* cos, const float* sin, int width, float direction) {
  const int half = width / 2;
  const Vec sign = broadcast(direction);
  int i = 0;
  for (; i + lanes <= half; i += lanes) {
    const Vec c = load(cos + i), s = mul(load(sin + i), sign), a = load(x + i), b = load(x + half + i);
    store(x + i, sub(mul(a, c), mul(b, s)));
    store(x + half + i, add(mul(b, c), mul(a, s)));
  }
  if (const int rest = half - i; rest > 0) {
    const Vec c = load_first(cos + i, rest, 0.0f), s = mul(load_first(sin + i, rest, 0.0f), sign),
              a = load_first(x + i, rest, 0.0f), b = load_first(x + half + i, rest, 0.0f);
    store_first(x + i, sub(mul(a, c), mul(b, s)), rest);
    store_first(x + half + i, add(mul(b, c), mul(a, s)), rest);
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
      if (weight) {
        const float inverse = norm_row(head, weight, eps, head, head_dim);
        if (inverse_rms) inverse_rms[i * ld_inverse + h] = inverse;
      }
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
      if (weight)
        norm_row_backward<false>(saved + i * ld_saved + size_t(h) * head_dim, weight, inverse_rms[i * ld_inverse + h],
                                 head, head, d_weight, head_dim);
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

}  // namespace
}  // namespace longhaul::ops
