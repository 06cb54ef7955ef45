// Compares the rotary embedding's frequencies and table with libm, and YaRN with published values and transformers' formula.
#include "model/rope.h"

#include <algorithm>
#include <cmath>

#include "support/check.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

Architecture rotary(int head_dim, double theta, int positions = 64) {
  Architecture architecture;
  architecture.vocab_size = 8;
  architecture.hidden_size = 16;
  architecture.intermediate_size = 16;
  architecture.num_hidden_layers = 1;
  architecture.num_attention_heads = 1;
  architecture.num_key_value_heads = 1;
  architecture.head_dim = head_dim;
  architecture.rope_theta = theta;
  architecture.max_position_embeddings = positions;
  return architecture;
}

Architecture with_yarn(double theta, double factor, int positions = 64) {
  Architecture architecture = rotary(128, theta, positions);
  architecture.yarn = YarnScaling{factor, 32768, 32, 1, 0.1 * std::log(factor) + 1};
  return architecture;
}

/// Both are fp32: if the exact value lies between two floats, they may round differently and differ by the last bit.
void check_float(float actual, double expected, const std::string& what) {
  check(std::abs(double(actual) - expected) <= 7e-8 * std::abs(expected),
        what + " is " + std::to_string(actual) + " instead of " + std::to_string(expected));
}

void frequencies_are_powers_of_theta() {
  for (const double theta : {1e4, 1e6, 5e6})
    for (const int head_dim : {16, 48, 64, 128}) {
      const std::vector<float> frequencies = rotary_frequencies(rotary(head_dim, theta));
      check_equal(frequencies.size(), size_t(head_dim / 2), "pairs");
      check_equal(frequencies[0], 1.0f, "the first pair");
      for (int i = 0; i < head_dim / 2; ++i)
        check_float(frequencies[i], 1 / std::pow(theta, 2.0 * i / head_dim), "frequency " + std::to_string(i));
    }
}

void check_table(const Architecture& architecture) {
  const RopeTable table(architecture);
  const std::vector<float> frequencies = rotary_frequencies(architecture);
  const int half = architecture.head_dim / 2, last = architecture.max_position_embeddings - 1;
  const double factor = architecture.yarn ? architecture.yarn->attention_factor : 1;
  for (const int position : {0, 1, 17, 511, 512, 513, 9999, last})
    for (int i = 0; i < half; ++i) {
      // (The angle is rounded to fp32, as in transformers: at position 40,000 that is 0.002 radians.)
      const double angle = float(position) * frequencies[i];
      const size_t at = size_t(position) * half + i;
      const std::string where = "position " + std::to_string(position) + ", pair " + std::to_string(i);
      check_near(table.cos()[at], std::cos(angle) * factor, 1.5e-7, "cos at " + where);
      check_near(table.sin()[at], std::sin(angle) * factor, 1.5e-7, "sin at " + where);
    }
}

void table_holds_cosine_and_sine() {
  check_table(rotary(64, 1e6, 40960));
  check_table(rotary(48, 1e4, 12345));
}

void yarn_blends_between_two_pairs() {
  const auto check_range = [](double theta, double low, double high) {
    const auto [actual_low, actual_high] = yarn_range(with_yarn(theta, 2));
    check_equal(actual_low, low, "low");
    check_equal(actual_high, high, "high");
  };
  // Qwen3 has 32,768 positions and heads of 128.
  check_range(1e6, 23, 40);
  check_range(5e6, 21, 36);
  // With a short context, few pairs turn 32 times, so both ends are clamped.
  Architecture shortest = with_yarn(1e4, 2);
  shortest.yarn->original_max_position_embeddings = 4;
  const auto [low, high] = yarn_range(shortest);
  check_equal(low, 0.0, "low");
  check_equal(high, std::ceil(128 * std::log(4 / (2 * M_PI)) / (2 * std::log(1e4))), "high");
}

void yarn_frequencies_follow_the_ramp() {
  for (const double factor : {2.0, 4.0}) {
    const Architecture stretched = with_yarn(1e6, factor);
    const std::vector<float> own = rotary_frequencies(rotary(128, 1e6)), yarn = rotary_frequencies(stretched);
    for (int i = 0; i < 64; ++i) {
      const std::string what = "frequency " + std::to_string(i);
      if (i <= 23) check_equal(yarn[i], own[i], what);
      if (i >= 40) check_float(yarn[i], 1 / std::pow(1e6, i / 64.0) / factor, what);
      const double ramp = std::min(1.0, std::max(0.0, (i - 23) / 17.0));
      check_float(yarn[i], std::pow(1e6, -i / 64.0) * ((1 - ramp) + ramp / factor), what);
    }
    check(yarn[30] < own[30] && yarn[30] > own[30] / float(factor), "between the ends");
  }
}

// inv_freq of transformers 5.23.0, computed in fp32 (Qwen3, heads of 128, original_max_position_embeddings 32768).
void yarn_frequencies_are_those_of_transformers() {
  const auto check_all = [](double theta, double factor, const std::vector<std::pair<int, double>>& expected) {
    const std::vector<float> frequencies = rotary_frequencies(with_yarn(theta, factor));
    for (const auto& [i, value] : expected)
      check(std::abs(frequencies[i] - value) <= 4e-7 * value,
            "frequency " + std::to_string(i) + " of factor " + std::to_string(factor));
  };
  check_all(1e6, 2, {{0, 1.0}, {1, 0.8058422207832336}, {21, 0.010746078565716743}, {23, 0.006978305988013744},
                     {24, 0.005458018742501736}, {29, 0.0015737258363515139}, {31, 0.0009489525109529495},
                     {36, 0.0002604596083983779}, {39, 0.00011682710464810953}, {40, 8.891397010302171e-05},
                     {63, 6.204688816069392e-07}});
  check_all(5e6, 4, {{0, 1.0}, {1, 0.785830020904541}, {21, 0.006337244529277086}, {23, 0.0035220880527049303},
                     {24, 0.0026139975525438786}, {29, 0.0005529430927708745}, {31, 0.0002845485578291118},
                     {36, 4.263530354364775e-05}, {39, 2.0689745724666864e-05}, {40, 1.625862205401063e-05},
                     {63, 6.362699167539176e-08}});
  const RopeTable table(with_yarn(1e6, 2, 12346));
  const size_t row = size_t(12345) * 64;
  check_near(table.cos()[row], 0.11915992945432663, 2e-7, "cos of pair 0");
  check_near(table.sin()[row], -1.0626546144485474, 2e-7, "sin of pair 0");
  check_near(table.cos()[row + 63], 1.069283366203308, 2e-7, "cos of pair 63");
  check_near(table.sin()[row + 63], 0.008190536871552467, 2e-7, "sin of pair 63");
}

// If both ends of the ramp are the same pair, transformers moves one end by a thousandth.
void a_ramp_of_zero_length_is_a_step() {
  Architecture step = rotary(16, 1e6);
  step.yarn = YarnScaling{4, 2, 32, 1, 1};
  const auto [low, high] = yarn_range(step);
  check_equal(low, 0.0, "low");
  check_equal(high, 0.0, "high");
  const std::vector<float> own = rotary_frequencies(rotary(16, 1e6)), yarn = rotary_frequencies(step);
  check_equal(yarn[0], own[0], "the first pair");
  check_float(yarn[1], double(own[1]) / 4, "the second pair");
}

void yarn_scales_the_table_at_every_position() {
  const Architecture architecture = with_yarn(1e6, 2, 10000);
  check_near(architecture.yarn->attention_factor, 1.06931, 1e-5, "attention factor");
  check_table(architecture);
  const RopeTable table(architecture);
  check_equal(table.cos()[0], float(architecture.yarn->attention_factor), "cos at position 0");
  check_equal(table.sin()[0], 0.0f, "sin at position 0");
}

void the_table_does_not_depend_on_threads() {
  const Architecture architecture = with_yarn(1e6, 4, 5000);
  ThreadPool pool(3);
  const RopeTable alone(architecture), shared(architecture, &pool);
  check_same_bits(shared.cos(), alone.cos(), size_t(5000) * 64, "cos");
  check_same_bits(shared.sin(), alone.sin(), size_t(5000) * 64, "sin");
}

void bad_settings_are_refused() {
  const auto refused = [](const std::function<void(YarnScaling&)>& spoil, const std::string& part) {
    Architecture architecture = with_yarn(1e6, 2);
    spoil(*architecture.yarn);
    check_throws<std::invalid_argument>([&] { validate(architecture); }, part, part);
  };
  validate(with_yarn(1e6, 2));
  refused([](YarnScaling& y) { y.factor = 0.5; }, "architecture.yarn.factor is 0.5; it must be between 1 and 1024");
  refused([](YarnScaling& y) { y.factor = std::nan(""); }, "architecture.yarn.factor is nan");
  refused([](YarnScaling& y) { y.original_max_position_embeddings = 0; }, "architecture.yarn.original_max_position_embeddings is 0");
  refused([](YarnScaling& y) { y.beta_slow = 0; }, "architecture.yarn.beta_slow is 0");
  refused([](YarnScaling& y) { y.beta_fast = 0.5; }, "above yarn.beta_slow");
  refused([](YarnScaling& y) { y.attention_factor = HUGE_VAL; }, "architecture.yarn.attention_factor is inf");
}

}  // namespace

int main() {
  return run({{"frequencies are powers of theta", frequencies_are_powers_of_theta},
              {"the table holds cosine and sine", table_holds_cosine_and_sine},
              {"YaRN blends between two pairs", yarn_blends_between_two_pairs},
              {"YaRN's frequencies follow the ramp", yarn_frequencies_follow_the_ramp},
              {"YaRN's frequencies are those of transformers", yarn_frequencies_are_those_of_transformers},
              {"a ramp of zero length is a step", a_ramp_of_zero_length_is_a_step},
              {"YaRN scales the table at every position", yarn_scales_the_table_at_every_position},
              {"the table does not depend on threads", the_table_does_not_depend_on_threads},
              {"bad settings are refused", bad_settings_are_refused}});
}
