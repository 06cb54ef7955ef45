// Sums as an H100's tensor cores compute them: bit for bit what the hardware gave, on every instruction set.
#include "base/tensor_core.h"

#include <bit>
#include <ctime>
#include <map>

#include "support/every_set.h"
#include "support/fixture_file.h"
#include "support/folders.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
float bf16(uint16_t bits) { return from_bits(uint32_t(bits) << 16); }

/// Also compares NaNs, and the sign of zeros.
void check_bits(const std::vector<float>& actual, const std::vector<float>& expected, const std::string& what) {
  check_equal(actual.size(), expected.size(), what + ": number of values");
  for (size_t i = 0; i < actual.size(); ++i)
    if (bits_of(actual[i]) != bits_of(expected[i])) {
      char text[160];
      std::snprintf(text, sizeof text, ": value %zu is %08x (%g) instead of %08x (%g)", i, bits_of(actual[i]), double(actual[i]),
                    bits_of(expected[i]), double(expected[i]));
      throw Failure(what + text);
    }
}

constexpr const char* kinds[] = {"normal", "wide", "all_finite", "zeros"};
constexpr int golden_products = 256, golden_rows = 16, golden_columns = 8, golden_depth = 16;

void a_sum_has_the_bits_of_the_hardware() {
  const FixtureFile golden("h100_sums");
  size_t compared = 0;
  for (const std::string kind : kinds) {
    const std::vector<float> a = golden.halves(kind + ".a"), b = golden.halves(kind + ".b"), c = golden.floats(kind + ".c");
    std::vector<float> sums;
    for (int product = 0; product < golden_products; ++product)
      for (int row = 0; row < golden_rows; ++row)
        for (int column = 0; column < golden_columns; ++column)
          sums.push_back(tensor_core_sum(c[sums.size()], a.data() + (product * golden_rows + row) * golden_depth, 1,
                                         b.data() + (product * golden_columns + column) * golden_depth, 1, golden_depth));
    check_bits(sums, golden.floats(kind + ".d"), kind);
    compared += sums.size();
  }
  check_equal(compared, size_t{131'072}, "results of the hardware");
}

struct Special {
  std::vector<std::pair<uint16_t, uint16_t>> products;
  uint32_t c = 0;
};

/// The operands of the cases in fixtures/h100_special.tsv; other products are 0 · 0.
std::map<std::string, Special> specials() {
  using Products = std::vector<std::pair<uint16_t, uint16_t>>;
  constexpr uint16_t one = 0x3F80, minus_one = 0xBF80, two = 0x4000, half = 0x3F00, infinity = 0x7F80, minus_infinity = 0xFF80, nan = 0x7FC0,
                     zero = 0, minus_zero = 0x8000, least = 0x0001, least_normal = 0x0080, big = 0x7F7F, minus_big = 0xFF7F, tiny = 0x1F80;
  const Products sixteen_zeros(16, {minus_zero, one});
  return {
      {"all zero, c=+0", {{}, 0}},
      {"all zero, c=-0", {{}, 0x80000000}},
      {"all -0 products (16), c=-0", {sixteen_zeros, 0x80000000}},
      {"all -0 products (16), c=+0", {sixteen_zeros, 0}},
      {"1-1, c=+0", {{{one, one}, {minus_one, one}}, 0}},
      {"1-1, c=-0", {{{one, one}, {minus_one, one}}, 0x80000000}},
      {"1*1, c=-1", {{{one, one}}, 0xBF800000}},
      {"inf*1", {{{infinity, one}}}},
      {"-inf*1", {{{minus_infinity, one}}}},
      {"inf-inf", {{{infinity, one}, {minus_infinity, one}}}},
      {"inf*0", {{{infinity, zero}}}},
      {"nan*1", {{{nan, one}}}},
      {"snan*1", {{{0x7F81, one}}}},
      {"-nan*1", {{{0xFFC1, one}}}},
      {"c=nan", {{}, 0x7FC12345}},
      {"c=-nan", {{}, 0xFFC00001}},
      {"c=inf", {{{one, one}}, 0x7F800000}},
      {"c=inf, -inf*1", {{{minus_infinity, one}}, 0x7F800000}},
      {"subnormal*1", {{{least, one}}}},
      {"subnormal*2", {{{least, two}}}},
      {"subnormal*big", {{{least, big}}}},
      {"min normal*half", {{{least_normal, half}}}},
      {"min normal*min normal", {{{least_normal, least_normal}}}},
      {"tiny*tiny (2^-64*2^-64)", {{{tiny, tiny}}}},
      {"tiny*tiny*... 2^-128 + c=min subnormal", {{{tiny, tiny}}, 1}},
      {"c=subnormal", {{}, 0x00000001}},
      {"c=largest subnormal", {{}, 0x007FFFFF}},
      {"c=subnormal, 1*1", {{{one, one}}, 0x007FFFFF}},
      {"big*big", {{{big, big}}}},
      {"big*big - big*big", {{{big, big}, {minus_big, big}}}},
      {"big*big - big*big + 1", {{{big, big}, {minus_big, big}, {one, one}}}},
      {"big*1 x16", {Products(16, {big, one})}},
      {"big*2", {{{big, two}}}},
      {"-big*2", {{{minus_big, two}}}},
      {"c=max, big*1", {{{big, one}}, 0x7F7FFFFF}},
      {"c=max, 1*1", {{{one, one}}, 0x7F7FFFFF}},
      {"c=max, big*half", {{{big, half}}, 0x7F7FFFFF}},
      {"c=-max, -big*1", {{{minus_big, one}}, 0xFF7FFFFF}},
      {"1.5*1.5 (no carry of the product into the exponent?)", {{{0x3FC0, 0x3FC0}}}},
      {"1.9921875^2 + 2^-24 terms", {{{0x3FFF, 0x3FFF}, {0x3980, 0x3980}, {0x3980, 0x3900}}}},
      {"1 + 2^-24 (c)", {{{one, one}}, 0x33800000}},
      {"1 + 2^-25 (c)", {{{one, one}}, 0x33000000}},
      {"1 + 2^-26 (c)", {{{one, one}}, 0x32800000}},
      {"1 - 2^-26 (c)", {{{one, one}}, 0xB2800000}},
      {"1 - 2^-25 (c)", {{{one, one}}, 0xB3000000}},
      {"1 - 2^-24 (c)", {{{one, one}}, 0xB3800000}},
      {"-1 + 2^-26 (c)", {{{minus_one, one}}, 0x32800000}},
      {"nan and inf", {{{infinity, one}, {nan, one}}}},
      {"inf*0 and c=nan", {{{infinity, zero}}, 0x7FC00001}},
  };
}

void special_values_are_those_of_the_hardware() {
  const std::map<std::string, Special> cases = specials();
  std::istringstream lines(read_text(FIXTURE_DIRECTORY "/h100_special.tsv"));
  size_t compared = 0;
  for (std::string line; std::getline(lines, line); ++compared) {
    const size_t first = line.find("\tmma "), second = line.find("\twgmma ");
    const std::string name = line.substr(0, first), measured = line.substr(first + 5, 8);
    check(cases.contains(name), "no operands for " + name);
    check_equal(line.substr(second + 7, 8), measured, name + ": wgmma");
    const Special& special = cases.at(name);
    std::vector<float> a(16), b(16);
    for (size_t k = 0; k < special.products.size(); ++k) {
      a[k] = bf16(special.products[k].first);
      b[k] = bf16(special.products[k].second);
    }
    const float sum = tensor_core_sum(from_bits(special.c), a.data(), 1, b.data(), 1, 16);
    check_bits({sum}, {from_bits(uint32_t(std::stoul(measured, nullptr, 16)))}, name);
  }
  check_equal(compared, cases.size(), "measured cases");
}

/// bf16 numbers of many kinds; `wildness` 0: in [−0.5, 0.5), 1: exponents far apart, and zeros, 2: every bit pattern.
std::vector<float> operands(size_t n, uint32_t stream, int wildness) {
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i) {
    const auto words = philox4x32_10({uint32_t(i), stream, 0, 0}, {7, 8});
    float value = philox_uniform(words[0]) - 0.5f;
    if (wildness == 1) value = words[1] % 5 == 0 ? 0.0f : std::ldexp(value, int(words[2] % 160) - 80);
    if (wildness == 2) value = from_bits(words[3]);
    values.push_back(bf16(uint16_t(bits_of(value) >> 16)));
  }
  return values;
}

/// One chain from +0 in sixteens; A(i, k) = a[i · row + k · step], B(k, j) = b[k · n + j].
std::vector<float> plain_chains(const std::vector<float>& a, size_t row, size_t step, const std::vector<float>& b, int m, int n,
                                int depth) {
  std::vector<float> c;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int k = 0; k < depth; k += products_at_once)
        sum = tensor_core_sum(sum, a.data() + i * row + k * step, step, b.data() + size_t(k) * n + j, size_t(n),
                              std::min(products_at_once, depth - k));
      c.push_back(sum);
    }
  return c;
}

void a_product_is_one_chain_in_sixteens() {
  struct Shape {
    int m, n, k;
  };
  for (const auto [m, n, k] : {Shape{1, 1, 1}, {1, 32, 16}, {3, 33, 47}, {8, 64, 32}, {13, 40, 100}, {21, 31, 257}, {16, 96, 15}})
    for (const int wildness : {0, 1, 2}) {
      const std::string shape = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + ", " + std::to_string(wildness);
      const std::vector<float> a = operands(size_t(m) * k, 1, wildness), b = operands(size_t(k) * n, 2, wildness);
      ops::Panels panels;
      ops::pack(b.data(), size_t(n), k, n, panels);
      for_each_instruction_set([&](const ops::Table& table) {
        std::vector<float> c(size_t(m) * n, -1.0f);
        table.matmul(a.data(), size_t(k), panels, c.data(), size_t(n), m, false);
        check_bits(c, plain_chains(a, size_t(k), 1, b, m, n, k), std::string(table.name) + " " + shape);
        std::fill(c.begin(), c.end(), 0.0f);
        table.matmul_transposed(a.data(), size_t(m), panels, c.data(), size_t(n), m);
        check_bits(c, plain_chains(a, 1, size_t(m), b, m, n, k), std::string(table.name) + " transposed " + shape);
      }, ops::Arithmetic::bf16);
    }
}

void a_chain_goes_on_from_what_there_is() {
  const int m = 9, n = 40, first = 48, rest = 37, depth = first + rest;
  const std::vector<float> a = operands(size_t(m) * depth, 3, 0), b = operands(size_t(depth) * n, 4, 0);
  ops::Panels before, behind;
  ops::pack(b.data(), size_t(n), first, n, before);
  ops::pack(b.data() + first * n, size_t(n), rest, n, behind);
  for_each_instruction_set([&](const ops::Table& table) {
    std::vector<float> c(size_t(m) * n);
    table.matmul(a.data(), depth, before, c.data(), n, m, false);
    table.matmul(a.data() + first, depth, behind, c.data(), n, m, true);
    check_bits(c, plain_chains(a, depth, 1, b, m, n, depth), table.name);
    std::fill(c.begin(), c.end(), 0.0f);
    table.matmul_transposed(a.data(), m, before, c.data(), n, m);
    table.matmul_transposed(a.data() + first * m, m, behind, c.data(), n, m);
    check_bits(c, plain_chains(a, 1, m, b, m, n, depth), std::string(table.name) + ", transposed");
  }, ops::Arithmetic::bf16);
}

/// a [1, depth] and b [depth, 32], with the chains of c before.
void check_chains(const std::string& what, const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& before) {
  const int depth = int(a.size());
  std::vector<float> expected;
  for (int j = 0; j < 32; ++j) {
    float sum = before[size_t(j)];
    for (int k = 0; k < depth; k += products_at_once)
      sum = tensor_core_sum(sum, a.data() + k, 1, b.data() + k * 32 + j, 32, std::min(products_at_once, depth - k));
    expected.push_back(sum);
  }
  ops::Panels panels;
  ops::pack(b.data(), 32, depth, 32, panels);
  for_each_instruction_set([&](const ops::Table& table) {
    std::vector<float> c(before);
    table.matmul(a.data(), size_t(depth), panels, c.data(), 32, 1, true);
    check_bits(c, expected, what + ", " + table.name);
  }, ops::Arithmetic::bf16);
}

/// Sixteen greatest products and a sum beside them do not fit into 32 bits.
void a_sum_that_32_bits_do_not_hold_is_right() {
  const std::vector<float> a(16, bf16(0x3FFF)), b(16 * 32, bf16(0x3FFF));
  check_chains("positive", a, b, std::vector<float>(32, 1.0f));
  check_chains("negative", std::vector<float>(16, bf16(0xBFFF)), b, std::vector<float>(32, -1.0f));
}

/// One such value among ordinary ones, as a factor on either side and as the sum before.
void a_special_value_alone_is_right() {
  for (const uint16_t bits : {0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x7F7F, 0xFF7F, 0x0001, 0x807F, 0x0080, 0x8000})
    for (const float factor : {0.125f, 0.0078125f, 0.0f, -1.0f, std::ldexp(1.0f, 100)}) {
      const std::string what = std::to_string(bits) + " times " + std::to_string(factor);
      std::vector<float> a(16, 0.5f), b(16 * 32, 0.0625f), zeros(32, 0.0f);
      a[3] = bf16(bits);
      std::fill_n(b.begin() + 3 * 32, 32, factor);
      check_chains(what + ", left", a, b, zeros);
      a[3] = bf16(uint16_t(bits_of(factor) >> 16));
      b[3 * 32 + 7] = bf16(bits);
      check_chains(what + ", right", a, b, zeros);
      std::vector<float> before(32, 0.25f);
      before[9] = bf16(bits);
      check_chains(what + ", before", std::vector<float>(16, 0.5f), std::vector<float>(16 * 32, 0.0625f), before);
    }
}

/// All factors of one side are subnormal, or all products small: their exponents decide what is cut.
void small_values_are_aligned_by_their_exponents() {
  for (uint32_t stream = 0; stream < 20; ++stream) {
    std::vector<float> subnormal, large, small;
    for (uint32_t i = 0; i < 16 * 32; ++i) {
      const auto words = philox4x32_10({i, stream, 1, 0}, {7, 8});
      subnormal.push_back(bf16(uint16_t((words[0] & 0x807F) | 1)));
      large.push_back(bf16(uint16_t((words[1] & 0x807F) | (227 + words[2] % 27) << 7)));
      small.push_back(bf16(uint16_t((words[1] & 0x807F) | (50 + words[2] % 27) << 7)));
    }
    const auto row = [](const std::vector<float>& values) { return std::vector<float>(values.begin(), values.begin() + 16); };
    check_chains("subnormal, left", row(subnormal), large, std::vector<float>(32, 0.0f));
    check_chains("subnormal, right", row(large), subnormal, std::vector<float>(32, 0.0f));
    check_chains("small products", row(small), small, std::vector<float>(32, 0.0f));
  }
}

/// Measured: 6.4 and 3.2. Runs of the oracle would take hours with much less.
void a_product_is_fast_enough_for_whole_runs() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::printf("skipped: a sanitizer is slow\n");
#else
  const std::map<std::string, double> least_rates = {{"scalar", 0}, {"avx2", 0.4}, {"avx512", 1}};  // 10⁹ multiply-adds/s on one thread
  const int m = 96, n = 512, k = 1024;
  const std::vector<float> a = operands(size_t(m) * k, 1, 0), b = operands(size_t(k) * n, 2, 0);
  ops::Panels panels;
  ops::pack(b.data(), size_t(n), k, n, panels);
  std::vector<float> c(size_t(m) * n);
  for_each_instruction_set([&](const ops::Table& table) {
    const std::clock_t start = std::clock();
    table.matmul(a.data(), size_t(k), panels, c.data(), size_t(n), m, false);
    const double rate = double(m) * n * k * CLOCKS_PER_SEC / double(std::clock() - start) / 1e9;
    std::printf("%s: %.2f billion multiply-adds a second\n", table.name, rate);
    check(rate >= least_rates.at(table.name), std::string(table.name) + ": the rate is under its bar");
  }, ops::Arithmetic::bf16);
#endif
}

}  // namespace

int main() {
  return run({{"a sum has the bits of the hardware", a_sum_has_the_bits_of_the_hardware},
              {"special values are those of the hardware", special_values_are_those_of_the_hardware},
              {"a product is one chain in sixteens", a_product_is_one_chain_in_sixteens},
              {"a chain goes on from what there is", a_chain_goes_on_from_what_there_is},
              {"a sum that 32 bits do not hold is right", a_sum_that_32_bits_do_not_hold_is_right},
              {"a special value alone is right", a_special_value_alone_is_right},
              {"small values are aligned by their exponents", small_values_are_aligned_by_their_exponents},
              {"a product is fast enough for whole runs", a_product_is_fast_enough_for_whole_runs}});
}
