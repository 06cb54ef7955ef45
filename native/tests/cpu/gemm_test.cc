// Every product equals the plain loop of fused multiply-adds over k, bit for bit, on every instruction set.
#include <cmath>

#include "support/every_set.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

struct Shape {
  int m, n, k;
};
// Sizes near the borders of tiles (4, 6, 12 rows), panels (32 columns), row blocks (192) and chain blocks (384, 512).
constexpr Shape shapes[] = {{1, 32, 16},    {1, 1, 1},      {7, 71, 48},   {12, 33, 300}, {13, 64, 257},  {25, 96, 384},
                            {61, 40, 385},  {97, 96, 512},  {192, 31, 20}, {193, 40, 31}, {205, 65, 400}, {14, 100, 1100},
                            {385, 32, 64},  {100, 96, 700}, {70, 200, 520}};

std::string title(const ops::Table& table, Shape s) {
  return std::string(table.name) + " " + std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
}

/// Adds one chain to each value of `c`; A(i, k) and B(k, j) are functions.
template <class A, class B>
void plain_product(std::vector<float>& c, size_t ldc, Shape s, A&& a, B&& b) {
  for (int i = 0; i < s.m; ++i)
    for (int j = 0; j < s.n; ++j) {
      float& sum = c[i * ldc + j];
      for (int k = 0; k < s.k; ++k) sum = std::fma(a(i, k), b(k, j), sum);
    }
}

void matmul_is_one_chain_over_k() {
  for (const Shape s : shapes) {
    // There are gaps between rows; the values in the gaps must not change.
    const size_t lda = size_t(s.k) + 3, ldc = size_t(s.n) + 5;
    const std::vector<float> a = random_values(size_t(s.m) * lda, 1), w = random_values(size_t(s.n) * s.k, 2),
                             before = random_values(size_t(s.m) * ldc, 3);
    for (const bool accumulate : {false, true}) {
      std::vector<float> expected(before);
      if (!accumulate)
        for (int i = 0; i < s.m; ++i) std::fill_n(expected.begin() + std::ptrdiff_t(i * ldc), s.n, 0.0f);
      plain_product(expected, ldc, s, [&](int i, int k) { return a[i * lda + k]; },
                    [&](int k, int j) { return w[size_t(j) * s.k + k]; });
      for_each_instruction_set([&](const ops::Table& table) {
        ops::Panels panels;
        ops::pack_transposed(w.data(), s.n, s.k, panels);
        std::vector<float> c(before);
        table.matmul(a.data(), lda, panels, c.data(), ldc, s.m, accumulate);
        check_same_bits(c, expected, title(table, s));
        // The same product by columns, in two calls.
        std::vector<float> parts(before);
        const int panel_count = ops::panel_count(s.n), middle = panel_count / 2;
        table.matmul_panels(a.data(), lda, panels, middle, panel_count, parts.data(), ldc, s.m, accumulate);
        table.matmul_panels(a.data(), lda, panels, 0, middle, parts.data(), ldc, s.m, accumulate);
        check_same_bits(parts, expected, title(table, s) + " by columns");
        // The same product while two pieces of memory are prefetched.
        std::vector<float> beside(before);
        const float* chunks[] = {a.data(), w.data()};
        table.matmul_fetching(a.data(), lda, panels, 0, panel_count, beside.data(), ldc, s.m, accumulate,
                              {chunks, 2, std::min(a.size(), w.size())});
        check_same_bits(beside, expected, title(table, s) + " fetching");
      });
    }
  }
}

void transposed_matmul_is_one_chain_over_k() {
  for (const Shape s : shapes) {
    const size_t lda = size_t(s.m) + 7, ldx = size_t(s.n) + 2, ldc = size_t(s.n) + 4;
    const std::vector<float> a = random_values(size_t(s.k) * lda, 4), x = random_values(size_t(s.k) * ldx, 5),
                             before = random_values(size_t(s.m) * ldc, 6);
    std::vector<float> expected(before);
    plain_product(expected, ldc, s, [&](int i, int k) { return a[k * lda + i]; }, [&](int k, int j) { return x[k * ldx + j]; });
    for_each_instruction_set([&](const ops::Table& table) {
      ops::Panels panels;
      ops::pack(x.data(), ldx, s.k, s.n, panels);
      std::vector<float> c(before);
      table.matmul_transposed(a.data(), lda, panels, c.data(), ldc, s.m);
      check_same_bits(c, expected, title(table, s));
    });
  }
}

void rows_do_not_depend_on_their_neighbours() {
  const int m = 50, n = 70, k = 600;
  const std::vector<float> a = random_values(size_t(m) * k, 10), w = random_values(size_t(n) * k, 11);
  ops::Panels panels;
  ops::pack_transposed(w.data(), n, k, panels);
  std::vector<float> together(size_t(m) * n), apart(size_t(m) * n);
  ops::table().matmul(a.data(), size_t(k), panels, together.data(), size_t(n), m, false);
  for (int i = 0, rows = 1; i < m; i += rows, rows = std::min(rows + 3, m - i))
    ops::table().matmul(a.data() + size_t(i) * k, size_t(k), panels, apart.data() + size_t(i) * n, size_t(n), rows, false);
  check_same_bits(apart, together, "rows in calls of 1, 4, 7, …");
}

void products_of_nothing_change_nothing() {
  const std::vector<float> before = random_values(64, 12);
  const std::vector<float> a(64);
  ops::Panels empty;
  ops::size_panels(empty, 0, 8);
  for_each_instruction_set([&](const ops::Table& table) {
    std::vector<float> c(before);
    table.matmul_transposed(a.data(), 8, empty, c.data(), 8, 8);
    table.matmul(a.data(), 8, empty, c.data(), 8, 8, true);
    check_same_bits(c, before, table.name);
  });
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
              {"rows do not depend on their neighbours", rows_do_not_depend_on_their_neighbours},
              {"products of nothing change nothing", products_of_nothing_change_nothing},
              {"panels can be packed again with another width", panels_can_be_packed_again_with_another_width}});
}
