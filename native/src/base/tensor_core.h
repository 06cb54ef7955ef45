// The sum that a tensor core of an H100 (sm_90) computes: what `mma.sync` and `wgmma` do with bf16 operands and fp32 sums. Found by
// measurement: none of 131,072 results of the hardware differs (tests/fixtures/h100_sums.safetensors), and its special values are
// tests/fixtures/h100_special.tsv.
#pragma once

#include <cstddef>

namespace longhaul {

/// Products that a tensor core adds at once.
inline constexpr int products_at_once = 16;

/// c + Σ a[k · step_a] · b[k · step_b] over k < count ≤ 16. Values of a and b are bf16 numbers.
///
/// All terms are aligned to the greatest exponent among them. The exponent of a product is the sum of its factors' exponents, and a
/// subnormal factor has exponent −126. Each term is cut (towards zero) behind 25 fractional bits. Their sum is exact, and is cut to fp32. A
/// sum of zero is +0; NaN is 0x7fffffff.
float tensor_core_sum(float c, const float* a, size_t step_a, const float* b, size_t step_b, int count);

}  // namespace longhaul
