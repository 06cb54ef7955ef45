// Rows of logits: normaliser, draw, entropy, gradients. Sums over the vocabulary add blocks of 64 tokens in token order. So a draw walks
// the same partial sums that normalise the log-prob.
#pragma once

#include "cpu/scratch.h"
#include "cpu/vec16.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

constexpr int draw_block = 64;

inline float row_max(const float* z, int n) {
  Vec greatest = broadcast(-__builtin_inff());
  int i = 0;
  for (; i + lanes <= n; i += lanes) greatest = max(greatest, load(z + i));
  if (i < n) greatest = max(greatest, load_first(z + i, n - i, -__builtin_inff()));
  return maximum(greatest);
}

// Σ exp((z − max) · inverse_temperature) over [begin, end)
inline float block_sum(const float* z, int begin, int end, float greatest, float inverse_temperature) {
  const Vec top = broadcast(greatest), scale = broadcast(inverse_temperature);
  Vec total = zeros();
  int i = begin;
  for (; i + lanes <= end; i += lanes) total = add(total, exponential(mul(sub(load(z + i), top), scale)));
  if (i < end)
    total = add(total, keep_first(exponential(mul(sub(load_first(z + i, end - i, greatest), top), scale)), end - i));
  return sum(total);
}

inline bool finite(float x) { return x - x == 0.0f; }

RowNormalizer normalize_row(const float* logits, int n, float inverse_temperature) {
  const float greatest = row_max(logits, n);
  float total = 0.0f;
  for (int begin = 0; begin < n; begin += draw_block)
    total = total + block_sum(logits, begin, begin + draw_block < n ? begin + draw_block : n, greatest, inverse_temperature);
  return {greatest, logarithm(total)};
}

int32_t draw_row(const float* logits, int n, float inverse_temperature, float uniform, RowNormalizer* normalizer) {
  const int blocks = (n + draw_block - 1) / draw_block;
  float* sums = scratch(Scratch::sums, size_t(blocks));
  const float greatest = row_max(logits, n);
  float total = 0.0f;
  for (int b = 0; b < blocks; ++b) {
    const int begin = b * draw_block;
    sums[b] = block_sum(logits, begin, begin + draw_block < n ? begin + draw_block : n, greatest, inverse_temperature);
    total = total + sums[b];
  }
  *normalizer = {greatest, logarithm(total)};
  if (!finite(total) || !finite(greatest)) return -1;

  // The middle of the cell of width 2⁻²⁴ that `uniform` stands for: an exact 0 must not select a token of probability 10⁻³⁰.
  const double wanted = (double(uniform) + 0x1p-25) * double(total);
  float before = 0.0f;
  int b = 0;
  while (b + 1 < blocks && !(double(before + sums[b]) > wanted)) before = before + sums[b++];
  const int end = (b + 1) * draw_block < n ? (b + 1) * draw_block : n;
  float weight[lanes];
  for (int i = b * draw_block; i < end; i += lanes) {
    const int count = end - i < lanes ? end - i : lanes;
    store(weight, exponential(mul(sub(load_first(logits + i, count, greatest), broadcast(greatest)),
                                  broadcast(inverse_temperature))));
    for (int j = 0; j < count; ++j) {
      before = before + weight[j];
      if (double(before) > wanted) return i + j;
    }
  }
  // Rounding left the last partial sum below the target. Take the likeliest token of the block, so that an improbable one is never drawn.
  int best = b * draw_block;
  for (int i = best + 1; i < end; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}

// log p of 16 tokens
inline Vec log_probabilities(Vec logits, const RowNormalizer& normalizer, float inverse_temperature) {
  return sub(mul(sub(logits, broadcast(normalizer.max)), broadcast(inverse_temperature)), broadcast(normalizer.log_sum));
}

void softmax_gradient(float* logits, int n, RowNormalizer normalizer, float inverse_temperature, int token, float scale) {
  const Vec factor = broadcast(scale);
  const auto gradient = [&](Vec z) { return mul(factor, exponential(log_probabilities(z, normalizer, inverse_temperature))); };
  int i = 0;
  for (; i + lanes <= n; i += lanes) store(logits + i, gradient(load(logits + i)));
  if (i < n) store_first(logits + i, gradient(load_first(logits + i, n - i, normalizer.max)), n - i);
  logits[token] = logits[token] - scale;
}

float row_entropy(const float* logits, int n, RowNormalizer normalizer, float inverse_temperature) {
  float total = 0.0f;
  for (int begin = 0; begin < n; begin += draw_block) {
    const int end = begin + draw_block < n ? begin + draw_block : n;
    Vec block = zeros();
    int i = begin;
    for (; i + lanes <= end; i += lanes) {
      const Vec log_p = log_probabilities(load(logits + i), normalizer, inverse_temperature);
      block = fma(exponential(log_p), log_p, block);
    }
    if (i < end) {
      const Vec log_p = log_probabilities(load_first(logits + i, end - i, normalizer.max), normalizer, inverse_temperature);
      block = fma(keep_first(exponential(log_p), end - i), log_p, block);
    }
    total = total - sum(block);
  }
  return total;
}

void softmax_entropy_gradient(float* logits, int n, RowNormalizer normalizer, float inverse_temperature, int token,
                              float scale, float entropy, float entropy_scale) {
  const Vec factor = broadcast(scale), entropy_factor = broadcast(entropy_scale), shift = broadcast(entropy);
  const auto gradient = [&](Vec z) {
    const Vec log_p = log_probabilities(z, normalizer, inverse_temperature);
    return mul(fma(entropy_factor, add(log_p, shift), factor), exponential(log_p));
  };
  int i = 0;
  for (; i + lanes <= n; i += lanes) store(logits + i, gradient(load(logits + i)));
  if (i < n) store_first(logits + i, gradient(load_first(logits + i, n - i, normalizer.max)), n - i);
  logits[token] = logits[token] - scale;
}

}  // namespace
}  // namespace longhaul::ops
