// Products on the device's tensor cores have the bits of the CPU's: for all layouts, tiles and ways to store, in any order of threads.
#include "cuda/kernels/tensor_core_products.h"

#include <algorithm>
#include <bit>

#include "support/device_checks.h"

using namespace longhaul;
using namespace longhaul::test;
using cuda::ProductLayout;
using cuda::bf16::Product;
using cuda::bf16::ProductTile;
using cuda::bf16::Store;

namespace {

struct Shape {
  int m, n, k;
};
// Sizes near the borders of tiles (16, 64, 128), of steps along k (32), of sixteens and of eights.
constexpr Shape shapes[] = {{1, 1, 1}, {1, 33, 64}, {15, 70, 129}, {16, 64, 32}, {61, 40, 97}, {97, 130, 48}, {129, 24, 120}};
constexpr ProductLayout layouts[] = {ProductLayout::forward, ProductLayout::backward, ProductLayout::gradient};
constexpr ProductTile tiles[] = {ProductTile::rows_16, ProductTile::rows_64, ProductTile::rows_128};
constexpr Store stores[] = {Store::sum, Store::chain, Store::added, Store::rounded, Store::residual};

uint16_t upper(float value) { return uint16_t(std::bit_cast<uint32_t>(value) >> 16); }
float value_of(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t rounded(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return uint16_t((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

std::vector<uint16_t> halves(size_t n, uint32_t stream) {
  std::vector<uint16_t> values;
  for (const float value : random_values(n, stream)) values.push_back(upper(value));
  return values;
}

std::vector<float> widened(const std::vector<uint16_t>& values) {
  std::vector<float> wide;
  for (const uint16_t value : values) wide.push_back(value_of(value));
  return wide;
}

/// The operands of a product, with gaps of `gap` values between rows. Gaps of the results must not change.
struct Operands {
  Operands(ProductLayout layout, Shape shape, size_t gap) : layout(layout), shape(shape) {
    const bool tall_a = layout == ProductLayout::gradient, tall_b = layout != ProductLayout::forward;
    const auto stride = [&](int columns) { return gap > 0 ? size_t(columns) + gap : (size_t(columns) + 7) / 8 * 8; };
    ld_a = stride(tall_a ? shape.m : shape.k);
    ld_b = stride(tall_b ? shape.n : shape.k);
    ld_c = stride(shape.n);
    a = halves(size_t(tall_a ? shape.k : shape.m) * ld_a, 1);
    b = halves(size_t(tall_b ? shape.k : shape.n) * ld_b, 2);
    c = random_values(size_t(shape.m) * ld_c, 3);
    y = halves(size_t(shape.m) * ld_c, 4);
    bias = halves(size_t(shape.n), 5);
    // Element [0, 0] is 256 − 256 + a small y, which another order of these sums would lose.
    for (int k = 0; k < shape.k; ++k) a[tall_a ? size_t(k) * ld_a : size_t(k)] = upper(k == 0 ? 256.0f : 0.0f);
    b[0] = upper(1.0f);
    bias[0] = upper(-256.0f);
    y[0] = upper(0x1p-20f);
  }

  ProductLayout layout;
  Shape shape;
  size_t ld_a, ld_b, ld_c;
  std::vector<uint16_t> a, b, y, bias;
  std::vector<float> c;
};

/// c and y afterwards.
struct Result {
  std::vector<float> c;
  std::vector<uint16_t> y;
  bool operator==(const Result& other) const { return same_values(c, other.c) && y == other.y; }
};

Result on_cpu(const Operands& from, Store store, bool bias) {
  const Shape s = from.shape;
  const ops::Table& table = ops::table(ops::Arithmetic::bf16);
  const std::vector<float> a = widened(from.a), b = widened(from.b);
  ops::Panels panels;
  if (from.layout == ProductLayout::forward) {
    ops::size_panels(panels, s.k, s.n);
    table.pack_transposed(b.data(), from.ld_b, panels, 0, ops::panel_count(s.n));
  } else {
    ops::pack(b.data(), from.ld_b, s.k, s.n, panels);
  }
  std::vector<float> sums(from.c);
  if (store != Store::chain)
    for (int i = 0; i < s.m; ++i) std::fill_n(sums.begin() + std::ptrdiff_t(i * from.ld_c), s.n, 0.0f);
  if (from.layout == ProductLayout::gradient)
    table.matmul_transposed(a.data(), from.ld_a, panels, sums.data(), from.ld_c, s.m);
  else
    table.matmul(a.data(), from.ld_a, panels, sums.data(), from.ld_c, s.m, store == Store::chain);
  Result result{from.c, from.y};
  for (int i = 0; i < s.m; ++i)
    for (int j = 0; j < s.n; ++j) {
      const size_t at = size_t(i) * from.ld_c + size_t(j);
      const float sum = sums[at], with_bias = bias ? sum + value_of(from.bias[size_t(j)]) : sum;
      if (store == Store::sum || store == Store::chain) result.c[at] = sum;
      if (store == Store::added) result.c[at] = from.c[at] + sum;
      if (store == Store::rounded) result.y[at] = rounded(with_bias);
      if (store == Store::residual) result.y[at] = rounded(value_of(from.y[at]) + with_bias);
    }
  return result;
}

Result on_device(const Operands& from, Store store, bool bias, const std::function<void(const Product&)>& launch) {
  const DeviceArray<uint16_t> a(from.a), b(from.b), y(from.y), more(from.bias);
  const DeviceArray<float> c(from.c);
  launch({from.layout, store, a.data(), from.ld_a, b.data(), from.ld_b, from.shape.m, from.shape.n, from.shape.k, c.data(), from.ld_c, y.data(),
          from.ld_c, bias ? more.data() : nullptr});
  return {c.values(), y.values()};
}

std::string title(const Operands& from, Store store) {
  const Shape s = from.shape;
  return "layout " + std::to_string(int(from.layout)) + ", store " + std::to_string(int(store)) + ", " + std::to_string(s.m) + "x" +
         std::to_string(s.n) + "x" + std::to_string(s.k);
}

void products_have_the_bits_of_the_cpu() {
  for (const Shape shape : shapes)
    for (const ProductLayout layout : layouts)
      for (const size_t gap : {0, 3})
        for (const Store store : stores) {
          const Operands from(layout, shape, gap);
          const Result expected = on_cpu(from, store, gap == 0);
          const auto check_launch = [&](const std::string& what, const std::function<void(const Product&)>& launch) {
            check(on_device(from, store, gap == 0, launch) == expected, title(from, store) + what);
          };
          check_launch("", [](const Product& args) { cuda::bf16::product(args, stream()); });
          if (store != Store::chain && store != Store::residual) continue;
          for (const ProductTile tile : tiles)
            check_launch(", tile " + std::to_string(int(tile)),
                         [&](const Product& args) { cuda::bf16::testing::product(args, stream(), tile, 0); });
        }
}

void every_schedule_gives_the_same_bits_and_needs_the_barriers() {
  for (const ProductTile tile : tiles)
    for (const ProductLayout layout : layouts) {
      const Operands from(layout, {33, 70, 145}, 0);
      const Result expected = on_cpu(from, Store::chain, false);
      bool shows[3] = {};
      for_each_schedule([&](const std::string& schedule) {
        for (const int fault : {0, 1, 2}) {
          if (fault > 0 && !shows_faults) continue;
          const Result result = on_device(from, Store::chain, false, [&](const Product& args) { cuda::bf16::testing::product(args, stream(), tile, fault); });
          if (fault == 0) check(result == expected, title(from, Store::chain) + ", " + schedule);
          shows[fault] = shows[fault] || !(result == expected);
        }
      });
      check(!shows_faults || shows[1], title(from, Store::chain) + ": a missing barrier");
      check(!shows_faults || shows[2], title(from, Store::chain) + ": copies that nobody waits for");
    }
}

}  // namespace

int main() {
  return run({{"products have the bits of the CPU", products_have_the_bits_of_the_cpu},
              {"every schedule gives the same bits, and needs the barriers", every_schedule_gives_the_same_bits_and_needs_the_barriers}});
}
