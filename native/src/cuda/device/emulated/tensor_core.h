// The tensor core's vocabulary for the emulated device: products of a warp, and the copies that feed them. Its sums are those of an H100
// (base/tensor_core.h).
#pragma once

#include "cuda/device/emulated/block.h"

namespace longhaul::cuda {

/// D += A·B over a warp, 16 × 8 outputs of 16 products each: `mma.sync.m16n8k16` of bf16 with fp32 sums. With g = l / 4 and t = 2 · (l % 4),
/// lane l holds k = t, t + 1 of A's rows g (a[0]) and g + 8 (a[1]) and of B's column g (b[0]); the same with k + 8 in a[2], a[3] and b[1]; and of
/// D columns t, t + 1 of rows g (d[0], d[1]) and g + 8 (d[2], d[3]). The lower half of a word is the lower index.
void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], emulated::Location at = emulated::Location::current());

/// Four 8 × 8 matrices of 16-bit values from shared memory: lane l gives the address of row l % 8 of matrix l / 8, a multiple of 16, and gets
/// in r[i] the values 2 · (l % 4) and + 1 of row l / 4 of matrix i: `ldmatrix.x4`.
void load_matrices(unsigned (&r)[4], const void* row, emulated::Location at = emulated::Location::current());
/// The same, each matrix transposed: `ldmatrix.x4.trans`.
void load_transposed_matrices(unsigned (&r)[4], const void* row, emulated::Location at = emulated::Location::current());

/// Begins to copy 16 bytes from global to shared memory, or zeros unless `there`: `cp.async`. Both addresses are multiples of 16. The bytes arrive
/// when the thread waits for their group.
void copy_async(void* shared, const void* global, bool there, emulated::Location at = emulated::Location::current());
/// Ends the group of the copies begun since the last group: `cp.async.commit_group`.
void commit_copies();
namespace emulated {
void wait_for_copies(int groups);
/// Forgets all copies, when a block starts.
void start_copies();
}  // namespace emulated
/// Waits until at most `Groups` of the thread's latest groups have not arrived: `cp.async.wait_group`.
template <int Groups>
void wait_for_copies() {
  emulated::wait_for_copies(Groups);
}

/// Two values rounded to bf16, to nearest, ties to even; `low` in the lower half: `cvt.rn.bf16x2.f32`.
unsigned bf16_pair(float low, float high);

}  // namespace longhaul::cuda
