// AdamW steps and the squares of the gradient's norm have the CPU's bits on the device, in any order of threads.
#include "cuda/kernels/optimizer.h"

#include <algorithm>

#include "support/device_checks.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

using Values = std::vector<float>;

ops::AdamStep step_number(int t, float weight_decay) {
  ops::AdamStep step{};
  step.learning_rate = 3e-3f;
  step.eps = 1e-8f;
  step.weight_decay = weight_decay;
  step.beta1 = 0.9f;
  step.one_minus_beta1 = 0.1f;
  step.beta2 = 0.95f;
  step.one_minus_beta2 = 0.05f;
  step.correction1 = float(1 - std::pow(0.9, t));
  step.correction2 = float(1 - std::pow(0.95, t));
  step.gradient_scale = t % 2 == 0 ? 1.0f : 0.37f;
  return step;
}

/// The gradient of step t: zeros of both signs, tiny and large values among them.
Values gradient(size_t n, int t) {
  Values values = with_zeros(random_values(n, uint32_t(10 + t)));
  for (size_t i = 5; i < n; i += 13) values[i] *= 1e-22f;
  for (size_t i = 6; i < n; i += 17) values[i] *= 1e4f;
  return values;
}

template <class... Parts>
Values joined(const Parts&... parts) {
  Values all;
  (all.insert(all.end(), parts.begin(), parts.end()), ...);
  return all;
}

constexpr int steps = 4;

/// Several steps, so that the moments of one are the next one's input.
void steps_with_fp32_moments() {
  for (const size_t n : {size_t(16), size_t(272), size_t(1040)}) {
    const Values before = with_zeros(random_values(n, 1)), zeros(n, 0.0f);
    const Values expected = reference("fp32", [&](const ops::Table& op) {
      Values w(before), m(zeros), v(zeros);
      for (int t = 1; t <= steps; ++t) op.adamw(step_number(t, 0.1f), w.data(), m.data(), v.data(), gradient(n, t).data(), n);
      return joined(w, m, v);
    });
    const auto on_device = [&](int) {
      const DeviceArray<float> w(before), m(zeros), v(zeros);
      for (int t = 1; t <= steps; ++t) {
        const DeviceArray<float> g(gradient(n, t));
        cuda::adamw({step_number(t, 0.1f), w.data(), m.data(), v.data(), g.data(), n}, stream());
      }
      return joined(w.values(), m.values(), v.values());
    };
    check_same_values(on_device(0), expected, "fp32, " + std::to_string(n));
    check_schedules<float>(on_device, expected, 0, "fp32, " + std::to_string(n));
  }
}

/// Whole blocks of 256, a last block that is shorter, and one that is no multiple of 16. A block may be all zero, or so small that its
/// first moments are stored as zero.
void steps_with_8bit_moments() {
  for (const size_t n : {size_t(1), size_t(256), size_t(256 * 3 + 48), size_t(256 * 5 + 21)})
    for (const bool some_decay : {false, true}) {
      const std::string what = "8 bits, " + std::to_string(n) + (some_decay ? ", some decay" : "");
      const Values before = with_zeros(random_values(n, 1));
      const size_t blocks = (n + 255) / 256;
      std::vector<uint8_t> decayed;
      for (size_t i = 0; i < (n + 15) / 16; ++i) decayed.push_back(i % 3 != 1);
      const auto gradient_of = [&](int t) {
        Values g = gradient(n, t);
        for (size_t i = 256; i < std::min<size_t>(n, 512); ++i) g[i] = 0.0f;
        for (size_t i = 512; i < std::min<size_t>(n, 768); ++i) g[i] *= 1e-37f;
        return g;
      };
      const Values expected = reference(what, [&](const ops::Table& op) {
        Values w(before), first_scales(blocks, 0.0f), second_scales(blocks, 0.0f);
        std::vector<int8_t> first(n, 0);
        std::vector<uint8_t> second(n, 0);
        for (int t = 1; t <= steps; ++t)
          op.adamw_8bit(step_number(t, 0.1f), w.data(), first.data(), first_scales.data(), second.data(), second_scales.data(),
                        gradient_of(t).data(), n, some_decay ? decayed.data() : nullptr);
        return joined(w, first_scales, second_scales, first, second);
      });
      const auto on_device = [&](int fault) {
        const DeviceArray<float> w(before), first_scales(Values(blocks, 0.0f)), second_scales(Values(blocks, 0.0f));
        const DeviceArray<int8_t> first(std::vector<int8_t>(n, 0));
        const DeviceArray<uint8_t> second(std::vector<uint8_t>(n, 0)), device_decayed(decayed);
        for (int t = 1; t <= steps; ++t) {
          const DeviceArray<float> g(gradient_of(t));
          cuda::testing::adamw_8bit({step_number(t, 0.1f), w.data(), first.data(), first_scales.data(), second.data(),
                                     second_scales.data(), g.data(), n, some_decay ? device_decayed.data() : nullptr},
                                    stream(), fault);
          }
        return joined(w.values(), first_scales.values(), second_scales.values(), first.values(), second.values());
      };
      check_same_values(on_device(0), expected, what);
      check_schedules<float>(on_device, expected, n > 256 ? 1 : 0, what);
    }
}

/// Ranges of several stretches of 16,384 values, with shorter rests, and one of a single value.
void squares_are_added_as_the_cpu_adds_them() {
  for (const bool extremes : {false, true}) {
    const std::vector<size_t> sizes{1, 4096, 5000, 16384, 16384 * 3 + 4096 + 17};
    std::vector<Values> ranges;
    for (size_t i = 0; i < sizes.size(); ++i) {
      ranges.push_back(with_zeros(random_values(sizes[i], uint32_t(i))));
      // Blocks of very different size: otherwise their sum would be exact in double, in any order.
      for (size_t at = 0; at < sizes[i]; ++at) ranges.back()[at] *= std::pow(10.0f, float(int(i * 5 + at / 4096 * 3) % 7 - 3));
      if (extremes && i > 1) ranges.back()[sizes[i] / 2] = std::numeric_limits<float>::infinity();
    }
    const auto bits_of = [](double value) {
      std::vector<uint64_t> bits(1);
      std::memcpy(bits.data(), &value, sizeof value);
      return bits;
    };
    double expected = -1;
    for_each_instruction_set([&](const ops::Table& op) {
      double total = 0;
      for (const Values& range : ranges)
        for (size_t at = 0; at < range.size(); at += 16384)
          total += op.sum_of_squares(range.data() + at, std::min<size_t>(16384, range.size() - at));
      check(expected < 0 || bits_of(total) == bits_of(expected), std::string("squares, ") + op.name);
      expected = total;
    });
    check_schedules<uint64_t>(
        [&](int) {
          double total = 0;
          for (const Values& range : ranges) {
            const DeviceArray<float> x(range), totals(cuda::square_blocks(range.size()));
            cuda::squares(x.data(), range.size(), totals.data(), stream());
            total = cuda::add_squares(total, totals.values().data(), range.size());
          }
          return bits_of(total);
        },
        bits_of(expected), 0, "squares");
  }
}

}  // namespace

int main() {
  return run({
      {"steps with moments in fp32", steps_with_fp32_moments},
      {"steps with moments in 8 bits", steps_with_8bit_moments},
      {"squares are added as the CPU adds them", squares_are_added_as_the_cpu_adds_them},
  });
}
