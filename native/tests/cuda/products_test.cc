// Every product on the device has the bits of the CPU's: for all layouts and tiles, in any order of threads.
#include "cuda/kernels/products.h"

#include <algorithm>

#include "support/device_checks.h"

using namespace longhaul;
using namespace longhaul::test;
using cuda::Product;
using cuda::ProductLayout;
using cuda::ProductTile;

namespace {

struct Shape {
  int m, n, k;
};
// Sizes near the borders of tiles (4, 16, 64, 128 rows; 32, 64, 128 columns), of steps along k (16, 32, 64) and of the CPU's blocks.
constexpr Shape shapes[] = {{1, 1, 1}, {1, 33, 64}, {4, 70, 129}, {7, 71, 48}, {16, 64, 65}, {61, 40, 385}, {97, 130, 33}, {129, 40, 520}};
constexpr ProductLayout layouts[] = {ProductLayout::forward, ProductLayout::backward, ProductLayout::gradient};
constexpr ProductTile tiles[] = {ProductTile::rows_4, ProductTile::rows_16, ProductTile::rows_64, ProductTile::rows_128};

/// The operands of a product, with gaps of `gap` floats between rows. C's gaps must not change.
struct Operands {
  Operands(ProductLayout layout, Shape shape, size_t gap) : layout(layout), shape(shape) {
    const bool tall_a = layout == ProductLayout::gradient, tall_b = layout != ProductLayout::forward;
    const auto stride = [&](int columns) { return gap > 0 ? size_t(columns) + gap : (size_t(columns) + 3) / 4 * 4; };
    ld_a = stride(tall_a ? shape.m : shape.k);
    ld_b = stride(tall_b ? shape.n : shape.k);
    ld_c = stride(shape.n);
    a = with_zeros(random_values(size_t(tall_a ? shape.k : shape.m) * ld_a, 1));
    b = with_zeros(random_values(size_t(tall_b ? shape.k : shape.n) * ld_b, 2));
    c = with_zeros(random_values(size_t(shape.m) * ld_c, 3));
    // C[0, 0] stays −0 only if every step adds −0 and there is no step too many.
    for (int k = 0; k < shape.k; ++k) {
      a[tall_a ? k * ld_a : size_t(k)] = 0.0f;
      b[tall_b ? k * ld_b : size_t(k)] = -1.0f;
    }
    c[0] = -0.0f;
  }

  ProductLayout layout;
  Shape shape;
  size_t ld_a, ld_b, ld_c;
  std::vector<float> a, b, c;
};

std::vector<float> on_cpu(const Operands& from, bool accumulate, const ops::Table& table) {
  const Shape s = from.shape;
  std::vector<float> c(from.c);
  ops::Panels panels;
  if (from.layout == ProductLayout::forward) {
    ops::size_panels(panels, s.k, s.n);
    table.pack_transposed(from.b.data(), from.ld_b, panels, 0, ops::panel_count(s.n));
  } else {
    ops::pack(from.b.data(), from.ld_b, s.k, s.n, panels);
  }
  if (from.layout != ProductLayout::gradient) {
    table.matmul(from.a.data(), from.ld_a, panels, c.data(), from.ld_c, s.m, accumulate);
    return c;
  }
  if (!accumulate)
    for (int i = 0; i < s.m; ++i) std::fill_n(c.begin() + std::ptrdiff_t(i * from.ld_c), s.n, 0.0f);
  table.matmul_transposed(from.a.data(), from.ld_a, panels, c.data(), from.ld_c, s.m);
  return c;
}

/// Runs `launch` on the operands in the device's memory, `offset` floats past an aligned address.
template <class Launch>
std::vector<float> on_device(const Operands& from, bool accumulate, size_t offset, Launch&& launch) {
  const auto shifted = [&](const std::vector<float>& values) {
    std::vector<float> result(offset, 0.0f);
    result.insert(result.end(), values.begin(), values.end());
    return result;
  };
  const DeviceArray<float> a(shifted(from.a)), b(shifted(from.b)), c(from.c);
  launch(Product{from.layout, a.data() + offset, from.ld_a, b.data() + offset, from.ld_b, c.data(), from.ld_c, from.shape.m, from.shape.n,
                 from.shape.k, accumulate});
  return c.values();
}

std::string title(const Operands& from, bool accumulate) {
  const Shape s = from.shape;
  return "layout " + std::to_string(int(from.layout)) + ", " + std::to_string(s.m) + "x" + std::to_string(s.n) + "x" +
         std::to_string(s.k) + (accumulate ? ", added" : "");
}

void products_have_the_bits_of_the_cpu() {
  for (const Shape shape : shapes)
    for (const ProductLayout layout : layouts)
      for (const size_t gap : {0, 3})
        for (const bool accumulate : {false, true}) {
          const Operands from(layout, shape, gap);
          const std::string what = title(from, accumulate);
          const std::vector<float> expected =
              reference(what, [&](const ops::Table& table) { return on_cpu(from, accumulate, table); });
          if (accumulate) check(std::signbit(expected[0]), what + ": the CPU keeps −0");
          for (const ProductTile tile : tiles)
            check_same_values(
                on_device(from, accumulate, gap, [&](const Product& args) { cuda::testing::product(args, stream(), tile, 0); }), expected,
                what + ", tile " + std::to_string(int(tile)));
          check_same_values(on_device(from, accumulate, 0, [](const Product& args) { cuda::product(args, stream()); }), expected, what);
        }
}

void a_row_with_nan_and_infinities_leaves_the_others_alone() {
  for (const ProductLayout layout : layouts) {
    Operands from(layout, {21, 67, 83}, 3);
    from.a = with_extremes(from.a);
    from.b = with_extremes(from.b);
    const std::vector<float> expected = reference("extremes", [&](const ops::Table& table) { return on_cpu(from, true, table); });
    for (const ProductTile tile : tiles)
      check_same_values(on_device(from, true, 0, [&](const Product& args) { cuda::testing::product(args, stream(), tile, 0); }), expected,
                        title(from, true) + " with NaN and infinities, tile " + std::to_string(int(tile)));
  }
}

void every_schedule_gives_the_same_bits_and_needs_the_barriers() {
  for (const ProductTile tile : tiles) {
    const Operands from(ProductLayout::gradient, {70, 77, 200}, 0);
    const std::vector<float> expected = on_cpu(from, true, ops::table());
    check_schedules<float>(
        [&](int fault) {
          return on_device(from, true, 0, [&](const Product& args) { cuda::testing::product(args, stream(), tile, fault); });
        },
        expected, 2, "tile " + std::to_string(int(tile)));
  }
}

/// The tile is chosen by the size of C; see the comment at `product_tile`.
void few_rows_get_low_tiles_and_large_products_get_large_ones() {
  check(cuda::product_tile(1, 4096) == ProductTile::rows_4, "one row");
  check(cuda::product_tile(16, 4096) == ProductTile::rows_16, "sixteen rows");
  check(cuda::product_tile(64, 151936) == ProductTile::rows_64, "64 rows of logits");
  check(cuda::product_tile(4096, 4096) == ProductTile::rows_128, "a large product");
  check(cuda::product_tile(512, 1024) != ProductTile::rows_128, "32 large tiles would leave most of a GPU idle");
}

}  // namespace

int main() {
  return run({
      {"products have the bits of the CPU", products_have_the_bits_of_the_cpu},
      {"NaN and infinities stay in their rows and columns", a_row_with_nan_and_infinities_leaves_the_others_alone},
      {"every schedule gives the same bits and needs the barriers", every_schedule_gives_the_same_bits_and_needs_the_barriers},
      {"few rows get low tiles, and large products large ones", few_rows_get_low_tiles_and_large_products_get_large_ones},
  });
}
