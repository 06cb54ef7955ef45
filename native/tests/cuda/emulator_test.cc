// The emulated device runs correct kernels with equal bits in every schedule, and refuses those that break a rule.
#include "cuda/device/device.h"

#include "cuda/device/exact.h"
#include "support/check.h"

using namespace longhaul::cuda;
using namespace longhaul::test;

namespace {

constexpr int row_threads = 128;

// sums[b] = Σ of 128 values of row b, by 16 lanes and then 8 of them in shared memory.
// Fault 1: no barrier before the partial sums are read.
template <int Fault>
__global__ void row_sums(const float* values, float* sums) {
  SHARED(float, partial, [row_threads / 16]);
  const int thread = int(threadIdx.x);
  const float half = sum16(values[blockIdx.x * row_threads + threadIdx.x]);
  if (thread % 16 == 0) partial[thread / 16] = half;
  if (Fault != 1) __syncthreads();
  if (thread == 0) {
    float total = 0.0f;
    for (const float part : partial) total += part;
    sums[blockIdx.x] = total;
  }
}

void sums() {
  const Stream stream = make_stream();
  std::vector<float> v(row_threads * 4, 1.0f);
  DeviceArray<float> values(v, stream), out(4);
  for (int seed = 0; seed < 20; ++seed) {
    set_schedule(seed);
    launch(row_sums<0>, dim3(4), dim3(row_threads), 0, stream, values.data(), out.data());
    for (float x : out.host(stream)) check_equal(x, 128.0f, "sum");
  }
  free_stream(stream);
}

}  // namespace

int main() { return run({{"sums", sums}}); }
