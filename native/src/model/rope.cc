#include "model/rope.h"

#include <algorithm>
#include <cmath>

#include "base/exact_math.h"

namespace longhaul {

// As transformers' _compute_yarn_parameters with its default, truncate = true.
std::pair<double, double> yarn_range(const Architecture& architecture) {
  const YarnScaling& yarn = *architecture.yarn;
  // The (fractional) index of the pair whose wave turns `rotations` times over the original context.
  const auto pair_that_turns = [&](double rotations) {
    return architecture.head_dim * exact::log(yarn.original_max_position_embeddings / (rotations * 6.283185307179586477)) /
           (2 * exact::log(architecture.rope_theta));
  };
  const double low = std::floor(pair_that_turns(yarn.beta_fast)), high = std::ceil(pair_that_turns(yarn.beta_slow));
  return {std::max(low, 0.0), std::min(high, double(architecture.head_dim - 1))};
}

std::vector<float> rotary_frequencies(const Architecture& architecture) {
  const int half = architecture.head_dim / 2;
  const double log_theta = exact::log(architecture.rope_theta);
  std::vector<float> frequencies(half);
  for (int i = 0; i < half; ++i) {
    const double own = exact::exp(-2.0 * i / architecture.head_dim * log_theta);
    if (!architecture.yarn) {
      frequencies[i] = float(own);
      continue;
    }
    auto [low, high] = yarn_range(architecture);
    if (low == high) high += 0.001;  // as transformers does, to avoid a division by zero
    const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
    frequencies[i] = float(own / architecture.yarn->factor * stretched + own * (1 - stretched));
  }
  return frequencies;
}

RopeTable::RopeTable(const Architecture& architecture, ThreadPool* pool) {
  const int half = architecture.head_dim / 2, positions = architecture.max_position_embeddings;
  cos_.resize(size_t(positions) * half);
  sin_.resize(size_t(positions) * half);
  const std::vector<float> frequencies = rotary_frequencies(architecture);
  const float factor = architecture.yarn ? float(architecture.yarn->attention_factor) : 1.0f;  // ×1 changes no bit
  constexpr int chunk = 512;
  const auto fill = [&](size_t index) {
    const int first = int(index) * chunk;
    for (int position = first; position < std::min(first + chunk, positions); ++position)
      for (int i = 0; i < half; ++i) {
        const exact::SineCosine angle = exact::sine_cosine(double(float(position) * frequencies[i]));
        cos_.data()[size_t(position) * half + i] = float(angle.cosine) * factor;
        sin_.data()[size_t(position) * half + i] = float(angle.sine) * factor;
      }
  };
  const size_t chunks = size_t(positions + chunk - 1) / chunk;
  if (pool) {
    pool->parallel_for(chunks, fill);
  } else {
    for (size_t i = 0; i < chunks; ++i) fill(i);
  }
}

}  // namespace longhaul
