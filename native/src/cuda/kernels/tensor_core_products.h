// Matrix products on tensor cores, with the bits of cpu/tensor_core_kernels.h: every element is one chain over k in sixteens, whatever the
// tile. Operands are bf16 numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/stream.h"
#include "cuda/kernels/products.h"

namespace longhaul::cuda::bf16 {

/// What becomes of an element's sum.
enum class Store {
  sum,       // c = sum
  chain,     // c goes on as a chain: it is where the sum begins
  added,     // c = c + sum
  rounded,   // y = sum + bias, rounded
  residual,  // y = y + (sum + bias), rounded
};

/// A · B as the layout says; k ≥ 1. `ld…` are row strides in values.
struct Product {
  ProductLayout layout;
  Store store;
  const std::uint16_t* a;
  size_t ld_a;
  const std::uint16_t* b;
  size_t ld_b;
  int m, n, k;
  float* c = nullptr;  // [m, n]
  size_t ld_c = 0;
  std::uint16_t* y = nullptr;  // [m, n]
  size_t ld_y = 0;
  const std::uint16_t* bias = nullptr;  // [n], or null
};

void product(const Product& args, Stream stream);

/// Tiles of the result that one block of threads computes.
enum class ProductTile { rows_16, rows_64, rows_128 };

/// The tile that `product` uses: by the number of rows, and small enough that the tiles occupy most of a GPU.
ProductTile product_tile(int m, int n);

namespace testing {

/// `product` with the given tile, and without the kernel's barrier (`fault` 1) or its wait for copies (2); 0: with both.
void product(const Product& args, Stream stream, ProductTile tile, int fault);

}  // namespace testing

}  // namespace longhaul::cuda::bf16
