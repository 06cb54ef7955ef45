// Every product equals the plain loop of fused multiply-adds over k, bit for bit, on every instruction set.
#include <cmath>

#include "base/philox.h"
#include "check.h"
#include "ops/ops.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

std::vector<float> random_values(size_t n, uint32_t stream) {
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i)
    values.push_back(philox_uniform(philox4x32_10({uint32_t(i), stream, 0, 0}, {5, 6})[0]) - 0.5f);
  return values;
}

struct Shape {
  int m, n, k;
};
constexpr Shape shapes[] = {{1, 32, 16}, {1, 1, 1}, {7, 71, 48}, {12, 33, 300}, {13, 64, 257}, {97, 96, 512}, {200, 40, 31}};

void for_each_instruction_set(const std::function<void(const ops::Table&)>& test) {
  for (const auto set : {ops::InstructionSet::scalar, ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
    if (!ops::supported(set)) continue;
    ops::set_instruction_set(set);
    test(ops::table());
  }
  ops::set_instruction_set(ops::best_instruction_set());
}

std::string title(const ops::Table& table, Shape s) {
  return std::string(table.name) + " " + std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
}

void matmul_is_one_chain_over_k() {
  for (const Shape s : shapes) {
    const std::vector<float> a = random_values(size_t(s.m) * s.k, 1), w = random_values(size_t(s.n) * s.k, 2),
                             before = random_values(size_t(s.m) * s.n, 3);
    for (const bool accumulate : {false, true}) {
      std::vector<float> expected(before);
      for (int i = 0; i < s.m; ++i)
        for (int j = 0; j < s.n; ++j) {
          float sum = accumulate ? before[size_t(i) * s.n + j] : 0.0f;
          for (int k = 0; k < s.k; ++k) sum = std::fma(a[size_t(i) * s.k + k], w[size_t(j) * s.k + k], sum);
          expected[size_t(i) * s.n + j] = sum;
        }
      for_each_instruction_set([&](const ops::Table& table) {
        ops::Panels panels;
        ops::pack_transposed(w.data(), s.n, s.k, panels);
        std::vector<float> c(before);
        table.matmul(a.data(), size_t(s.k), panels, c.data(), size_t(s.n), s.m, accumulate);
        check_same_bits(c, expected, title(table, s));
      });
    }
  }
}

void transposed_matmul_is_one_chain_over_k() {
  for (const Shape s : shapes) {
    const std::vector<float> a = random_values(size_t(s.k) * s.m, 4), x = random_values(size_t(s.k) * s.n, 5),
                             before = random_values(size_t(s.m) * s.n, 6);
    std::vector<float> expected(before);
    for (int i = 0; i < s.m; ++i)
      for (int j = 0; j < s.n; ++j)
        for (int k = 0; k < s.k; ++k)
          expected[size_t(i) * s.n + j] = std::fma(a[size_t(k) * s.m + i], x[size_t(k) * s.n + j], expected[size_t(i) * s.n + j]);
    for_each_instruction_set([&](const ops::Table& table) {
      ops::Panels panels;
      ops::pack(x.data(), size_t(s.n), s.k, s.n, panels);
      std::vector<float> c(before);
      table.matmul_transposed(a.data(), size_t(s.m), panels, c.data(), size_t(s.n), s.m);
      check_same_bits(c, expected, title(table, s));
    });
  }
}

void panels_can_be_packed_again_with_another_width() {
  const std::vector<float> wide = random_values(64 * 20, 7), narrow = random_values(40 * 20, 8);
  ops::Panels used, fresh;
  ops::pack_transposed(wide.data(), 64, 20, used);
  ops::pack_transposed(narrow.data(), 40, 20, used);
  ops::pack_transposed(narrow.data(), 40, 20, fresh);
  check_same_bits(used.values.data(), fresh.values.data(), 64 * 20, "panels");
}

}  // namespace

int main() {
  return run({{"matmul is one chain over k", matmul_is_one_chain_over_k},
              {"transposed matmul is one chain over k", transposed_matmul_is_one_chain_over_k},
              {"panels can be packed again with another width", panels_can_be_packed_again_with_another_width}});
}
