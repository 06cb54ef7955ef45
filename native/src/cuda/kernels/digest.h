// BLAKE3 digests of a state's leaves, computed where the state lies (state/digest/digest.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/stream.h"

namespace longhaul::cuda {

/// Bytes of a leaf: StateLeaves::leaf_bytes.
constexpr uint64_t leaf_bytes = uint64_t{1} << 20;
constexpr uint64_t leaf_count(uint64_t total_bytes) { return (total_bytes + leaf_bytes - 1) / leaf_bytes; }

/// A tensor's bytes in the device's memory, and the place of the first one among the bytes of all tensors. Any alignment will do, but a
/// multiple of four is fast.
struct DigestPart {
  const uint8_t* data;
  uint64_t first;
};

/// The bytes of all tensors, in order, cut into leaves of 1 MiB; the last may be shorter.
struct LeafDigests {
  const DigestPart* parts;  // [part_count], in device memory, in order; each ends where the next begins
  int part_count;           // ≥ 1
  uint64_t total_bytes;     // > 0
  uint32_t* digests;        // [leaf_count(total_bytes), 8], little-endian words
};

void leaf_digests(const LeafDigests& args, Stream stream);

namespace testing {

/// `leaf_digests` without barrier `fault` of the kernel, 1 or 2.
void leaf_digests(const LeafDigests& args, Stream stream, int fault);

}  // namespace testing

}  // namespace longhaul::cuda
