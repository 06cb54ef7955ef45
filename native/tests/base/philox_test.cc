#include "base/philox.h"

#include "support/check.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

// Expected values from Random123's kat_vectors for philox4x32, 10 rounds.
void known_answers() {
  check(philox4x32_10({0, 0, 0, 0}, {0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, "all zero");
  check(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
            PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        "all one");
  check(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
            PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
        "digits of pi");
}

void sampling_key_fills_key_and_counter() {
  const SamplingKey key{0x1234567890abcdefull, PhiloxDomain::eval, 11, 12, 13};
  const PhiloxBlock block = philox4x32_10({11, 12, 13, 14}, {0x90abcdef, 0x12345678 ^ 2});
  check_equal(sampling_uniform(key, 14), float(block[0] >> 8) * 0x1p-24f, "uniform");
}

void uniforms_stay_below_one() {
  check_equal(philox_uniform(0xffffffffu), 1.0f - 0x1p-24f, "greatest");
  check_equal(philox_uniform(0xffu), 0.0f, "least");
}

}  // namespace

int main() {
  return run({{"known answers", known_answers},
              {"the sampling key fills key and counter", sampling_key_fills_key_and_counter},
              {"uniforms stay below one", uniforms_stay_below_one}});
}
