// An fp32 weight as two 16-bit halves. `high` is the weight in bf16, which a backend with bf16 arithmetic reads directly; `low` is the
// remainder. So master weight and compute weight together take 4 bytes, not 6. The format is shared with the CUDA backend.
//   high = (bits + 0x8000) >> 16    rounds half away from zero, so that the remainder fits a signed half
//   low  = int16(bits & 0xFFFF)     bits = (high << 16) + low
// Exact for every bit pattern, NaN and infinity included (all modulo 2³²). A finite weight with |w| ≥ 2¹²⁸ − 2¹¹⁹ has an infinite `high`;
// no trained weight gets that large.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul {

struct SplitWeight {
  uint16_t high = 0;
  int16_t low = 0;

  bool operator==(const SplitWeight&) const = default;
};

constexpr SplitWeight split_weight(float weight) {
  const uint32_t bits = std::bit_cast<uint32_t>(weight);
  return {uint16_t((bits + 0x8000u) >> 16), int16_t(uint16_t(bits))};
}

constexpr float joined_weight(SplitWeight split) {
  return std::bit_cast<float>((uint32_t(split.high) << 16) + uint32_t(int32_t(split.low)));
}

/// The bf16 weight for computing.
constexpr float bf16_weight(uint16_t high) { return std::bit_cast<float>(uint32_t(high) << 16); }

/// Splits an array of weights; all three arrays have the same size.
inline void split_weights(std::span<const float> weights, std::span<uint16_t> high, std::span<int16_t> low) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const SplitWeight split = split_weight(weights[i]);
    high[i] = split.high;
    low[i] = split.low;
  }
}

inline void join_weights(std::span<const uint16_t> high, std::span<const int16_t> low, std::span<float> weights) {
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = joined_weight({high[i], low[i]});
}

}  // namespace longhaul
