// AdamW's moments, in fp32 or in 8 bits (block-wise, Dettmers et al. 2022): 256 values share a scale, with linear signed codes for the
// first moment and unsigned codes of the square root for the second. The formats are shared with the CUDA backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"

namespace longhaul {

enum class MomentFormat { fp32, int8 };

/// "fp32", "int8"
const char* name(MomentFormat format);

/// Moments of `size` parameters. fp32: `first`, `second` [size]. int8: codes [size], and one fp32 scale for each block of 256 values of the
/// flat array (the last block may be shorter).
struct Moments {
  static constexpr size_t block = 256;

  Moments() = default;
  Moments(MomentFormat format, size_t size);

  MomentFormat format = MomentFormat::fp32;
  size_t size = 0;
  AlignedBuffer first{BufferMemory::copied}, second{BufferMemory::copied};
  std::vector<int8_t> first_codes;
  std::vector<uint8_t> second_codes;
  AlignedBuffer first_scales, second_scales;  // [blocks()]

  size_t blocks() const { return (size + block - 1) / block; }
};

}  // namespace longhaul
