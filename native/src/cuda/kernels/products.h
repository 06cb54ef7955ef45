// Matrix products with the bits of cpu/gemm_kernels.h: every element of C is one chain of fused multiply-adds over k = 0..K−1, whatever the
// tile.
#pragma once

#include <cstddef>

#include "cuda/device/stream.h"

namespace longhaul::cuda {

/// How the operands lie in memory. A weight matrix W[outputs, inputs] serves all three as it lies, without packing.
enum class ProductLayout {
  forward,   // C[M,N] (+)= A[M,K] · B[N,K]ᵀ: Y = X · Wᵀ
  backward,  // C[M,N] (+)= A[M,K] · B[K,N]:  dX = dY · W
  gradient,  // C[M,N] (+)= A[K,M]ᵀ · B[K,N]: dW += dYᵀ · X
};

/// C[m,n] (+)= A · B; k ≥ 1. `ld…` are row strides in floats.
struct Product {
  ProductLayout layout;
  const float* a;
  size_t ld_a;
  const float* b;
  size_t ld_b;
  float* c;
  size_t ld_c;
  int m, n, k;
  bool accumulate;  // the chain continues from C; otherwise it starts at 0
};

void product(const Product& args, Stream stream);

/// Tiles of C that one block of threads computes.
enum class ProductTile { rows_4, rows_16, rows_64, rows_128 };

/// The tile that `product` uses: by the number of rows, and small enough that the tiles occupy most of a GPU.
ProductTile product_tile(int m, int n);

namespace testing {

/// `product` with the given tile, and without barrier `fault` of the kernel (0: with all barriers).
void product(const Product& args, Stream stream, ProductTile tile, int fault);

}  // namespace testing

}  // namespace longhaul::cuda
