// Small kernels that need their barriers, with switches that leave one out, and what they compute.
#pragma once

#include <vector>

#include "cuda/device/device.h"
#include "cuda/device/exact.h"

namespace longhaul::test {

using namespace longhaul::cuda;

#if defined(LONGHAUL_RACE_CHECK)
constexpr bool race_check_builds = true;
#else
constexpr bool race_check_builds = false;
#endif
#if defined(LONGHAUL_ADDRESS_CHECK)
constexpr bool address_check_builds = true;
#else
constexpr bool address_check_builds = false;
#endif

constexpr int sum_rows = 3, row_threads = 128;

inline std::vector<float> row_values() {
  std::vector<float> values;
  for (int i = 0; i < sum_rows * row_threads; ++i) values.push_back(float(i * 7919 % 1009) * 0.37f - 150.0f);
  return values;
}

// shares[row, thread] = value − (Σ of the row: 16 lanes by their tree, then 8 such sums in order). One block a row.
// Fault 1: no barrier before the partial sums are read. 2: none before the sum is read. 3: as 1, and a thread of the last warp adds.
template <int Fault>
__global__ void __launch_bounds__(row_threads) row_sums(const float* values, float* shares) {
  SHARED(float, partial, [row_threads / 16]);
  SHARED(float, total, [1]);
  const int thread = int(threadIdx.x), adder = Fault == 3 ? row_threads - 8 : 0;
  const float value = values[blockIdx.x * row_threads + threadIdx.x], sum = sum16(value);
  if (thread % 16 == 0) partial[thread / 16] = sum;
  if (Fault != 1 && Fault != 3) __syncthreads();
  if (thread == adder) {
    float s = 0.0f;
    for (int i = 0; i < row_threads / 16; ++i) s += partial[i];
    total[0] = s;
  }
  if (Fault != 2) __syncthreads();
  shares[blockIdx.x * row_threads + threadIdx.x] = value - total[0];
}

template <int Fault>
std::vector<float> run_row_sums(Stream stream) {
  const DeviceArray<float> values(row_values(), stream);
  DeviceArray<float> shares(values.size());
  launch(row_sums<Fault>, dim3(sum_rows), dim3(row_threads), 0, stream, values.data(), shares.data());
  return shares.host(stream);
}

inline std::vector<float> expected_row_sums() {
  std::vector<float> shares = row_values();
  for (int row = 0; row < sum_rows; ++row) {
    float total = 0.0f, *values = shares.data() + row * row_threads;
    for (int part = 0; part < row_threads; part += 16) {
      float lanes[16];
      for (int i = 0; i < 16; ++i) lanes[i] = values[part + i];
      for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
      total += lanes[0];
    }
    for (int i = 0; i < row_threads; ++i) values[i] -= total;
  }
  return shares;
}

// values[warp, lane] = lane's number + the warp's, then reversed over the lanes, in place. Fault 1: no __syncwarp between.
template <int Fault>
__global__ void __launch_bounds__(64) reversed_lanes(float* values) {
  const unsigned lane = threadIdx.x % 32, first = blockIdx.x * 64 + threadIdx.x - lane;
  values[first + lane] = float(first + lane);
  if (Fault != 1) __syncwarp();
  const float other = values[first + 31 - lane];
  __syncwarp();
  values[first + lane] = other;
}

template <int Fault>
std::vector<float> run_reversed_lanes(Stream stream) {
  DeviceArray<float> values(3 * 64);
  launch(reversed_lanes<Fault>, dim3(3), dim3(64), 0, stream, values.data());
  return values.host(stream);
}

inline std::vector<float> expected_reversed_lanes() {
  std::vector<float> values;
  for (int i = 0; i < 3 * 64; ++i) values.push_back(float(i / 32 * 32 + 31 - i % 32));
  return values;
}

// to[j, i] = from[i, j] of a 16 × 32 matrix in each block, through dynamic shared memory. Fault 1: no barrier between.
template <int Fault>
__global__ void __launch_bounds__(128) transposed(const float* from, float* to) {
  DYNAMIC_SHARED(shared);
  float* tile = reinterpret_cast<float*>(shared);
  const unsigned first = blockIdx.x * 512, t = threadIdx.x;
  store<float4>(tile + t * 4, load<float4>(from + first + t * 4));
  if (Fault != 1) __syncthreads();
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned at = e * 128 + t;
    to[first + at] = tile[at % 16 * 32 + at / 16];
  }
}

template <int Fault>
std::vector<float> run_transposed(Stream stream) {
  std::vector<float> matrix;
  for (int i = 0; i < 1024; ++i) matrix.push_back(float(i));
  const DeviceArray<float> from(matrix, stream);
  DeviceArray<float> to(from.size());
  launch(transposed<Fault>, dim3(2), dim3(128), 512 * sizeof(float), stream, from.data(), to.data());
  return to.host(stream);
}

inline std::vector<float> expected_transposed() {
  std::vector<float> matrix;
  for (int i = 0; i < 1024; ++i) matrix.push_back(float(i / 512 * 512 + i % 512 % 16 * 32 + i % 512 / 16));
  return matrix;
}

}  // namespace longhaul::test
