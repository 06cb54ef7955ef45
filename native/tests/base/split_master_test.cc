#include "base/split_master.h"

#include <bit>
#include <cmath>
#include <limits>

#include "support/check.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

void check_pattern(uint32_t bits) {
  const float weight = std::bit_cast<float>(bits);
  const SplitWeight split = split_weight(weight);
  const uint32_t joined = std::bit_cast<uint32_t>(joined_weight(split));
  if (joined != bits) throw Failure("pattern " + std::to_string(bits) + " comes back as " + std::to_string(joined));
  // The halves as the format defines them, in wide integers.
  const uint32_t high = uint32_t((uint64_t(bits) + 0x8000) >> 16) & 0xFFFF;
  if (split.high != high) throw Failure("pattern " + std::to_string(bits) + ": high half " + std::to_string(split.high));
}

/// Every 61st of all 2³² patterns, NaN and infinities included.
void all_kinds_of_patterns_survive_the_round_trip() {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 61) check_pattern(uint32_t(bits));
}

/// Every low half with special high halves, and every high half with special low halves.
void border_patterns_survive_the_round_trip() {
  for (const uint32_t high : {0x0000u, 0x0001u, 0x007Fu, 0x0080u, 0x3F7Fu, 0x3F80u, 0x7F7Eu, 0x7F7Fu, 0x7F80u, 0x7FFFu, 0x8000u, 0x8080u,
                              0xBF80u, 0xFF7Fu, 0xFF80u, 0xFFFEu, 0xFFFFu})
    for (uint32_t low = 0; low <= 0xFFFF; ++low) check_pattern(high << 16 | low);
  for (uint32_t high = 0; high <= 0xFFFF; ++high)
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) check_pattern(high << 16 | low);
}

/// The high half is the nearest bf16; ties round away from zero.
void high_half_is_the_weight_in_bf16() {
  for (uint32_t bits = 0x00800000; bits < 0x7F7F0000; bits += 4099) {
    const double weight = std::bit_cast<float>(bits);
    const double rounded = bf16_weight(split_weight(float(weight)).high);
    const double below = bf16_weight(uint16_t(bits >> 16)), above = bf16_weight(uint16_t((bits >> 16) + 1));
    const double nearest = weight - below < above - weight ? below : above;
    check(rounded == nearest, "pattern " + std::to_string(bits) + " rounds to " + std::to_string(rounded));
    check(bf16_weight(split_weight(float(-weight)).high) == -nearest, "the negative rounds the same way");
  }
  check(std::isinf(bf16_weight(split_weight(std::numeric_limits<float>::max()).high)), "the largest finite weight rounds up");
}

void arrays_come_back() {
  const std::vector<float> weights{0.0f, -0.0f, 1.0f, -1.5f, 3.14159274f, 1e-40f, -2e38f, 0x1.FFFFFEp-3f};
  std::vector<uint16_t> high(weights.size());
  std::vector<int16_t> low(weights.size());
  std::vector<float> joined(weights.size());
  split_weights(weights, high, low);
  join_weights(high, low, joined);
  check_same_bits(joined, weights, "weights");
  check_equal(high[7], uint16_t(0x3E80), "high half of a number just below 1/4");
  check_equal(low[7], int16_t(-1), "its low half");
}

}  // namespace

int main() {
  return run({{"all kinds of patterns survive the round trip", all_kinds_of_patterns_survive_the_round_trip},
              {"border patterns survive the round trip", border_patterns_survive_the_round_trip},
              {"high half is the weight in bf16", high_half_is_the_weight_in_bf16},
              {"arrays come back", arrays_come_back}});
}
