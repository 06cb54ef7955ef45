// Half-precision formats in files: converted to fp32 exactly, and from fp32 rounded to nearest, ties to even.
// defines: from_bf16, from_f16, to_bf16
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace longhaul {

inline std::uint16_t half_word(const std::uint8_t* bytes, std::size_t index) {
  std::uint16_t word = 0;
  std::memcpy(&word, bytes + index * sizeof word, sizeof word);
  return word;
}

// bfloat16 is the upper half of an fp32 value. `bytes` need not be aligned.
inline void from_bf16(const std::uint8_t* bytes, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(std::uint32_t{half_word(bytes, i)} << 16);
}

// IEEE 754 binary16, including subnormal values, infinities and NaNs. `bytes` need not be aligned.
inline void from_f16(const std::uint8_t* bytes, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t word = half_word(bytes, i);
    // The five exponent bits move to the low bits of fp32's eight; the factor 2¹¹² corrects the bias.
    const float magnitude = std::bit_cast<float>((word & 0x7fff) << 13) * 0x1p112f;
    std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude) | (word & 0x8000) << 16;
    if ((word & 0x7c00) == 0x7c00) bits |= 0x7f800000;
    to[i] = std::bit_cast<float>(bits);
  }
}

// A NaN stays a NaN.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return std::uint16_t(bits >> 16 | 0x40);
  return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace longhaul
