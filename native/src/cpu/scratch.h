// Working memory of the kernels: one buffer for each thread and purpose, reused by later calls.
#pragma once

#include <cstddef>

namespace longhaul::ops {

enum class Scratch {
  chain_rows,
  transposed,
  queries,
  keys_panels,
  keys_rows,
  values_panels,
  values_rows,
  scores,
  d_scores,
  outputs,
  d_outputs,
  d_queries,
  d_keys,
  d_values,
  sums,
  count
};

/// Room for at least `size` floats, with unspecified contents, until the next call with the same purpose on this
/// thread.
float* scratch(Scratch purpose, size_t size);

}  // namespace longhaul::ops
