// AdamW with moments in fp32 and in 8 bits: steps compared with double precision, codes compared with their definition, the same bits on
// every instruction set, and the effect of rounding over thousands of steps.
#include <algorithm>
#include <cmath>

#include "support/every_set.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr size_t block = 256;

ops::AdamStep step_of(int64_t t, float learning_rate = 1e-3f, float weight_decay = 0.1f) {
  const double beta1 = 0.9, beta2 = 0.999;
  return {learning_rate, 1e-8f, weight_decay, float(beta1), float(1 - beta1), float(beta2), float(1 - beta2),
          float(1 - std::pow(beta1, double(t))), float(1 - std::pow(beta2, double(t))), 0.5f};
}

/// Gradients of very different sizes, with zeros among them.
std::vector<float> gradients_of(size_t n, uint32_t stream) {
  std::vector<float> gradients = random_values(n, stream);
  for (size_t i = 0; i < n; ++i) gradients[i] = i % 11 == 3 ? 0.0f : gradients[i] * float(std::pow(10.0, -double(i % 7)));
  return gradients;
}

struct EightBit {
  std::vector<float> weights, first_scales, second_scales;
  std::vector<int8_t> first;
  std::vector<uint8_t> second;

  explicit EightBit(std::vector<float> w)
      : weights(std::move(w)),
        first_scales((weights.size() + block - 1) / block),
        second_scales(first_scales.size()),
        first(weights.size()),
        second(weights.size()) {}

  void step(const ops::Table& op, const ops::AdamStep& settings, const std::vector<float>& gradients,
            const std::vector<uint8_t>& decayed = {}) {
    op.adamw_8bit(settings, weights.data(), first.data(), first_scales.data(), second.data(), second_scales.data(),
                  gradients.data(), weights.size(), decayed.empty() ? nullptr : decayed.data());
  }
  double m(size_t i) const { return double(first[i]) * first_scales[i / block] / 127; }
  double root(size_t i) const { return double(second[i]) * second_scales[i / block] / 255; }
  /// All arrays, as floats.
  std::vector<float> all() const {
    std::vector<float> values = weights;
    values.insert(values.end(), first_scales.begin(), first_scales.end());
    values.insert(values.end(), second_scales.begin(), second_scales.end());
    values.insert(values.end(), first.begin(), first.end());
    values.insert(values.end(), second.begin(), second.end());
    return values;
  }
};

void fp32_steps_match_double_precision() {
  const size_t n = 160;
  std::vector<float> weights = random_values(n, 1), m(n), v(n);
  std::vector<double> exact_weights(weights.begin(), weights.end()), exact_m(n), exact_v(n);
  for (int t = 1; t <= 5; ++t) {
    const ops::AdamStep s = step_of(t);
    const std::vector<float> gradients = gradients_of(n, uint32_t(t));
    ops::table().adamw(s, weights.data(), m.data(), v.data(), gradients.data(), n);
    for (size_t i = 0; i < n; ++i) {
      const double g = double(gradients[i]) * 0.5;
      exact_m[i] = 0.9 * exact_m[i] + 0.1 * g;
      exact_v[i] = 0.999 * exact_v[i] + 0.001 * g * g;
      const double direction = exact_m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(exact_v[i] / (1 - std::pow(0.999, t))) + 1e-8);
      exact_weights[i] -= 1e-3 * (direction + 0.1 * exact_weights[i]);
    }
  }
  check_close(weights, exact_weights, 1e-6, "weights");
  check_close(m, exact_m, 1e-5, "first moments");
}

void every_set_gives_the_same_bits() {
  for (const size_t n : {size_t{16}, size_t{240}, size_t{256}, size_t{1024 + 48}, size_t{300}, size_t{7}}) {
    const std::vector<float> weights = random_values(n, 9);
    std::vector<uint8_t> decayed((n + 15) / 16);
    for (size_t i = 0; i < decayed.size(); ++i) decayed[i] = i % 3 != 0;
    for (const bool everywhere : {true, false})
      on_every_set(std::to_string(n) + " values", [&](const ops::Table& op) {
        EightBit state(weights);
        std::vector<float> m(n), v(n), fp32(weights);
        for (int t = 1; t <= 20; ++t)
          state.step(op, step_of(t), gradients_of(n, uint32_t(t)), everywhere ? std::vector<uint8_t>{} : decayed);
        if (n % 16 == 0)
          for (int t = 1; t <= 20; ++t) op.adamw(step_of(t), fp32.data(), m.data(), v.data(), gradients_of(n, uint32_t(t)).data(), n);
        std::vector<float> values = state.all();
        values.insert(values.end(), fp32.begin(), fp32.end());
        return values;
      });
  }
}

/// From any state, a step changes the weights by the exact moments, and the stored moments differ from them by at most one code.
void codes_follow_the_format() {
  const size_t n = 2 * block + 80;
  EightBit state(random_values(n, 20));
  std::vector<uint8_t> decayed((n + 15) / 16, 1);
  decayed[4] = decayed[20] = 0;
  for (int t = 1; t <= 30; ++t) {
    const ops::AdamStep s = step_of(t);
    const std::vector<float> gradients = gradients_of(n, uint32_t(100 + t));
    const EightBit before = state;
    state.step(ops::table(), s, gradients, decayed);
    for (size_t first = 0; first < n; first += block) {
      const size_t end = std::min(n, first + block);
      double most_m = 0, most_root = 0;
      std::vector<double> m, root;
      for (size_t i = first; i < end; ++i) {
        const double g = double(gradients[i]) * 0.5;
        m.push_back(0.9 * before.m(i) + 0.1 * g);
        root.push_back(std::sqrt(0.999 * before.root(i) * before.root(i) + 0.001 * g * g));
        most_m = std::max(most_m, std::abs(m.back()));
        most_root = std::max(most_root, root.back());
      }
      check_near(state.first_scales[first / block] / most_m, 1, 1e-5, "scale of first moments");
      check_near(state.second_scales[first / block] / most_root, 1, 1e-5, "scale of second moments");
      for (size_t i = first; i < end; ++i) {
        const std::string place = "step " + std::to_string(t) + ", value " + std::to_string(i);
        const double exact_m = m[i - first], exact_root = root[i - first];
        check(std::abs(state.first[i] - exact_m / most_m * 127) <= 0.501, place + ": not the nearest first code");
        const double code = exact_root / most_root * 255;
        check(std::abs(state.second[i] - code) < 1.001, place + ": second code is not one of the two nearest");
        check((state.second[i] > 0) == (exact_root > 0), place + ": second code 0 does not mean v = 0");
        const double decay = decayed[i / 16] ? 0.1 : 0;
        const double direction = exact_m / (1 - std::pow(0.9, t)) / (exact_root / std::sqrt(1 - std::pow(0.999, t)) + 1e-8);
        check_near(state.weights[i], before.weights[i] - 1e-3 * (direction + decay * before.weights[i]), 2e-7, place + ": weight");
      }
    }
  }
}

/// 4,000 steps with gradients from one long-tailed distribution: v must stay near their variance. With rounding to the nearest code v would
/// drift, because only the largest gradients would change a code, and only upwards.
void second_moments_do_not_drift() {
  const size_t n = block;
  EightBit state{std::vector<float>(n)};
  double late = 0;
  int counted = 0;
  for (int t = 1; t <= 4000; ++t) {
    std::vector<float> gradients = scaled(random_values(n, uint32_t(10000 + t)), 2);
    for (float& g : gradients) g = 2 * g * g * g;  // the step halves it again: u³ with u uniform in ±1
    state.step(ops::table(), step_of(t, 0, 0), gradients);
    if (t <= 3000 || t % 50 != 0) continue;
    for (size_t i = 0; i < n; ++i) late += state.root(i) * state.root(i);
    counted += int(n);
  }
  const double corrected = late / counted / (1 - std::pow(0.999, 3500));
  check_near(corrected * 7, 1, 0.06, "v over its expectation, 1/7");
}

void nothing_blows_up() {
  const size_t n = block;
  EightBit state{std::vector<float>(n)};
  std::vector<float> gradients = scaled(random_values(n, 30), 1e-4f);
  // One gradient is far larger than all others, which are small: no weight may move by more than a few learning rates.
  for (int t = 1; t <= 200; ++t) {
    gradients[100] = t == 5 ? 1e4f : 0.0f;
    const EightBit before = state;
    state.step(ops::table(), step_of(t, 1e-3f, 0), gradients);
    for (size_t i = 0; i < n; ++i)
      check(std::abs(state.weights[i] - before.weights[i]) <= 4e-3f,
            "step " + std::to_string(t) + ": weight " + std::to_string(i) + " moved by " +
                std::to_string(state.weights[i] - before.weights[i]));
  }
}

void weights_without_gradients_stay() {
  const std::vector<float> weights = random_values(300, 40);
  EightBit state(weights);
  const std::vector<float> none(300), tiny(300, 1e-36f);
  for (int t = 1; t <= 3; ++t) state.step(ops::table(), step_of(t, 1e-3f, 0), none);
  check_same_bits(state.weights, weights, "weights");
  for (size_t i = 0; i < 300; ++i) check(state.first[i] == 0 && state.second[i] == 0, "codes stay 0 without gradients");
  // Moments that underflow leave weights and codes finite.
  for (int t = 4; t <= 6; ++t) state.step(ops::table(), step_of(t, 1e-3f, 0), tiny);
  check_same_bits(state.weights, weights, "weights after gradients of 1e-36");
  check(state.first_scales[0] == 0 && state.first[0] == 0, "moments too small to divide by are none");
}

}  // namespace

int main() {
  return run({{"fp32 steps match double precision", fp32_steps_match_double_precision},
              {"every set gives the same bits", every_set_gives_the_same_bits},
              {"codes follow the format", codes_follow_the_format},
              {"second moments do not drift", second_moments_do_not_drift},
              {"nothing blows up", nothing_blows_up},
              {"weights without gradients stay", weights_without_gradients_stay}});
}
