// AdamW steps and the squares of the gradient's norm, with the bits of cpu/moment_kernels.h and of sum_of_squares. Gradients are finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/stream.h"
#include "ops/ops.h"

namespace longhaul::cuda {

/// A step of n parameters with moments in fp32. Weight decay applies to all of them: one call for each trained range.
struct AdamW {
  ops::AdamStep step;
  float* weights;
  float* first;
  float* second;
  const float* gradients;
  size_t n;
};

void adamw(const AdamW& args, Stream stream);

/// A step of n parameters with moments in 8 bits, as ops::Table::adamw_8bit: blocks of 256 values with one scale each, counted from the
/// first parameter. The last block may be shorter.
struct AdamW8Bit {
  ops::AdamStep step;
  float* weights;
  int8_t* first_codes;
  float* first_scales;
  uint8_t* second_codes;
  float* second_scales;
  const float* gradients;
  size_t n;
  const uint8_t* decayed;  // [⌈n / 16⌉]: whether weight decay applies to these 16 values; null: to all
};

void adamw_8bit(const AdamW8Bit& args, Stream stream);

/// Values in one partial sum of squares.
constexpr size_t square_block = 4096;
constexpr size_t square_blocks(size_t n) { return (n + square_block - 1) / square_block; }

/// totals[square_blocks(n)] = Σ x² of each block.
void squares(const float* x, size_t n, float* totals, Stream stream);

/// `total` + Σ x² of a trained range of n values, from its totals (in the host's memory), in the order of gradient_norm
/// (model/optimizer.h): in double, by stretches of 16,384 values.
double add_squares(double total, const float* totals, size_t n);

namespace testing {

/// `adamw_8bit` without the kernel's barrier if `fault` is 1.
void adamw_8bit(const AdamW8Bit& args, Stream stream, int fault);

}  // namespace testing

}  // namespace longhaul::cuda
