// Kernels with one thread for each element of an array or of a matrix.
#pragma once

#include "cuda/device/device.h"

namespace longhaul::cuda {

constexpr int element_threads = 256;

inline unsigned element_blocks(size_t n) { return unsigned((n + element_threads - 1) / element_threads); }

/// This thread's element of an array; may be past the end.
DEVICE size_t own_element() { return size_t(blockIdx.x) * element_threads + threadIdx.x; }

/// A place in a matrix.
struct Place {
  size_t row;
  int column;
};

/// This thread's place in a matrix; the column may be past the end. Rows are the grid's x: only that may be large.
DEVICE Place own_place() { return {blockIdx.x, int(blockIdx.y * element_threads + threadIdx.x)}; }

/// Launches a kernel that uses own_element(), for n elements; no launch for none.
template <class... P, class... A>
void launch_elements(void (*kernel)(P...), size_t n, Stream stream, A... args) {
  if (n > 0) launch(kernel, dim3(element_blocks(n)), dim3(element_threads), 0, stream, args...);
}

/// Launches a kernel that uses own_place(), for a matrix [rows, width].
template <class... P, class... A>
void launch_places(void (*kernel)(P...), int rows, int width, Stream stream, A... args) {
  if (rows > 0 && width > 0)
    launch(kernel, dim3(unsigned(rows), element_blocks(size_t(width))), dim3(element_threads), 0, stream, args...);
}

}  // namespace longhaul::cuda
