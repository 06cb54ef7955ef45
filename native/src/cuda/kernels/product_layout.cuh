// What the kernels of products share: how their operands lie, and how many blocks a launch has.
#pragma once

#include <type_traits>

#include "cuda/kernels/products.h"

namespace longhaul::cuda {

/// Whether a matrix [extent, k] lies as [k, extent].
template <ProductLayout layout>
constexpr bool a_by_depth = layout == ProductLayout::gradient;
template <ProductLayout layout>
constexpr bool b_by_depth = layout != ProductLayout::forward;

inline unsigned blocks_of(int n, int size) { return unsigned((n + size - 1) / size); }

/// Calls use(constant) with the layout as a compile-time constant.
template <class Use>
void with_layout(ProductLayout layout, Use&& use) {
  switch (layout) {
    case ProductLayout::forward:
      return use(std::integral_constant<ProductLayout, ProductLayout::forward>{});
    case ProductLayout::backward:
      return use(std::integral_constant<ProductLayout, ProductLayout::backward>{});
    case ProductLayout::gradient:
      return use(std::integral_constant<ProductLayout, ProductLayout::gradient>{});
  }
}

}  // namespace longhaul::cuda
