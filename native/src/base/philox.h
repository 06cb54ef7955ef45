// Philox4x32-10 (Salmon et al., SC 2011): counter-based random numbers, a pure function of key and counter.
#pragma once

#include <array>
#include <cstdint>

namespace longhaul {

/// The purpose of random numbers; it is a part of the key of every draw.
enum class PhiloxDomain : uint32_t { train = 1, eval = 2, initial_weights = 3 };

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  constexpr uint32_t multiplier_0 = 0xD2511F53u, multiplier_1 = 0xCD9E8D57u;
  constexpr uint32_t weyl_0 = 0x9E3779B9u, weyl_1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product_0 = uint64_t{multiplier_0} * counter[0];
    const uint64_t product_1 = uint64_t{multiplier_1} * counter[2];
    counter = {uint32_t(product_1 >> 32) ^ counter[1] ^ key[0], uint32_t(product_1),
               uint32_t(product_0 >> 32) ^ counter[3] ^ key[1], uint32_t(product_0)};
    key = {key[0] + weyl_0, key[1] + weyl_1};
  }
  return counter;
}

constexpr std::array<uint32_t, 2> philox_key(uint64_t seed, PhiloxDomain domain) {
  return {uint32_t(seed), uint32_t(seed >> 32) ^ uint32_t(domain)};
}

/// Top 24 bits as a float in [0, 1).
constexpr float philox_uniform(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

/// Names the sample that a token belongs to. This key and the token's position in the transcript determine the random
/// number.
struct SamplingKey {
  uint64_t seed = 0;
  PhiloxDomain domain = PhiloxDomain::train;
  uint32_t step = 0;
  uint32_t slot = 0;
  uint32_t sample = 0;
};

/// Uniform in [0, 1) for the token that will stand at `position` of the transcript.
constexpr float sampling_uniform(const SamplingKey& key, uint32_t position) {
  return philox_uniform(
      philox4x32_10({key.step, key.slot, key.sample, position}, philox_key(key.seed, key.domain))[0]);
}

}  // namespace longhaul
