// A float for people who compare bits.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>

namespace longhaul {

/// For example "-3.25 (bits c0500000)".
inline std::string text_with_bits(float value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.9g (bits %08x)", double(value), std::bit_cast<std::uint32_t>(value));
  return text;
}

}  // namespace longhaul
