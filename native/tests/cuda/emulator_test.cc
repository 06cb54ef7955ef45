// Correct kernels give equal bits in every schedule of the emulated device; a missing barrier, or unwritten memory, changes the result.
#include <thread>

#include "cuda/device/device.h"
#include "cuda/emulator_kernels.h"
#include "support/every_set.h"

using namespace longhaul::cuda;
using namespace longhaul::test;

namespace {

// The thread sanitizer takes 0.5 ms to make a CUDA thread, and finds a race in any schedule.
constexpr uint64_t seeds = race_check_builds ? 2 : 16;

using Run = std::function<std::vector<float>(Stream)>;

size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  size_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  return n;
}

/// Number of the schedules from 1 to `seeds` in which the result is not `expected`.
uint64_t wrong_schedules(const Run& run, const std::vector<float>& expected) {
  const OwnedStream stream;
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    set_schedule(seed);
    wrong += differing(run(stream), expected) != 0;
  }
  set_schedule(0);
  return wrong;
}

void check_kernel(const std::string& name, const std::vector<float>& expected, const Run& correct) {
  const OwnedStream stream;
  check_same_bits(correct(stream), expected, name + ", natural order");
  check_equal(wrong_schedules(correct, expected), uint64_t{0}, name + ": schedules with other bits");
}

/// The thread sanitizer would end the program at a race, so the faulty kernels run only without it.
void check_fault(const std::string& name, const std::vector<float>& expected, bool natural_order_is_wrong, const Run& faulty) {
  if (race_check_builds) return;
  const OwnedStream stream;
  check_equal(differing(faulty(stream), expected) != 0, natural_order_is_wrong, name + ": wrong in natural order");
  check(wrong_schedules(faulty, expected) >= seeds * 3 / 4, name + ": at least 12 of 16 schedules show the fault");
}

void barriers_hold_in_every_schedule() {
  const std::vector<float> expected = expected_row_sums();
  check_kernel("row sums", expected, run_row_sums<0>);
  check_fault("row sums without a barrier before the partial sums are read", expected, true, run_row_sums<1>);
  check_fault("row sums without a barrier before the sum is read", expected, true, run_row_sums<2>);
  // In natural order the last warp reads after all others have written.
  check_fault("row sums added up by the last warp, without a barrier", expected, false, run_row_sums<3>);
}

void warp_barriers_hold_in_every_schedule() {
  const std::vector<float> expected = expected_reversed_lanes();
  check_kernel("reversed lanes", expected, run_reversed_lanes<0>);
  check_fault("reversed lanes without __syncwarp", expected, true, run_reversed_lanes<1>);
}

void dynamic_shared_memory_holds_a_tile() {
  check_kernel("transposed", expected_transposed(), run_transposed<0>);
  check_fault("transposed without a barrier", expected_transposed(), true, run_transposed<1>);
}

__global__ void lane_operations(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  unsigned* mine = out + threadIdx.x * 5;
  mine[0] = __shfl_sync(full_warp, threadIdx.x * 3u, 37);
  mine[1] = unsigned(__shfl_xor_sync(full_warp, int(threadIdx.x), 5));
  mine[2] = __float_as_uint(__shfl_down_sync(full_warp, float(threadIdx.x), 4));
  mine[3] = __ballot_sync(full_warp, lane % 3 == 0);
  mine[4] = __shfl_sync(full_warp, lane, int(31 - lane));
}

void lanes_exchange_values() {
  const OwnedStream stream;
  DeviceArray<unsigned> out(64 * 5);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    set_schedule(seed);
    launch(lane_operations, dim3(1), dim3(64), 0, stream, out.data());
    const std::vector<unsigned> found = out.host(stream);
    unsigned thirds = 0;
    for (unsigned i = 0; i < 32; i += 3) thirds |= 1u << i;
    for (unsigned t = 0; t < 64; ++t) {
      const unsigned lane = t % 32, first = t - lane;
      check_equal(found[t * 5], (first + 5) * 3, "__shfl_sync takes the lane modulo 32");
      check_equal(found[t * 5 + 1], first + (lane ^ 5u), "__shfl_xor_sync");
      check_equal(found[t * 5 + 2], __float_as_uint(float(lane < 28 ? t + 4 : t)), "__shfl_down_sync");
      check_equal(found[t * 5 + 3], thirds, "__ballot_sync");
      check_equal(found[t * 5 + 4], 31 - lane, "__shfl_sync of each lane's own choice");
    }
  }
  set_schedule(0);
}

__global__ void write_indices(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

void every_thread_of_a_grid_runs_once() {
  const OwnedStream stream;
  DeviceArray<unsigned> out(2 * 3 * 4 * 96);
  for (const uint64_t seed : {0, 7}) {
    set_schedule(seed);
    launch(write_indices, dim3(2, 3, 4), dim3(8, 3, 4), 0, stream, out.data());
    const std::vector<unsigned> found = out.host(stream);
    for (unsigned i = 0; i < found.size(); ++i) check_equal(found[i], i / 96 * 1000 + i % 96, "index");
  }
  set_schedule(0);
}

int arrivals = 0;
// It would be a race on a GPU, so the thread sanitizer must not see it; the emulated device runs one thread at a time.
__attribute__((noinline, no_sanitize("thread"))) int next_arrival() { return arrivals++; }

// When each thread came to the kernel's start, and when it left the barrier.
__global__ void note_arrival(int* turns) {
  turns[blockIdx.x * blockDim.x + threadIdx.x] = next_arrival();
  __syncthreads();
  turns[(gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = next_arrival();
}

std::vector<int> arrivals_with(uint64_t seed) {
  const OwnedStream stream;
  DeviceArray<int> turns(2 * 3 * 64);
  set_schedule(seed);
  arrivals = 0;
  launch(note_arrival, dim3(3), dim3(64), 0, stream, turns.data());
  set_schedule(0);
  return turns.host(stream);
}

void a_seed_is_a_schedule() {
  const std::vector<int> natural = arrivals_with(0);
  for (int t = 0; t < 64; ++t) check_equal(natural[size_t(t)], t, "natural order, first block");
  check(arrivals_with(5) == arrivals_with(5), "one seed always gives one order");
  // First the arrivals at the start, then those behind the barrier: 3 blocks of 64 threads.
  const auto orders = [](uint64_t seed) {
    const std::vector<int> turns = arrivals_with(seed);
    return std::pair(std::vector<int>(turns.begin(), turns.begin() + 192), std::vector<int>(turns.begin() + 192, turns.end()));
  };
  check(orders(5).first != orders(6).first && orders(5).first != orders(0).first, "seeds give different orders from the start");
  check(orders(5).second != orders(6).second && orders(5).second != orders(0).second, "seeds give different orders behind a barrier");
  bool blocks_differ = false;
  for (uint64_t seed = 1; seed <= 8; ++seed) blocks_differ |= orders(seed).first[0] >= 64;
  check(blocks_differ, "the first block is not always the first to run");
}

__global__ void read_unwritten(float* out) {
  SHARED(float, fixed, [64]);
  DYNAMIC_SHARED(bytes);
  float* dynamic = reinterpret_cast<float*>(bytes);
  float* mine = out + (blockIdx.x * blockDim.x + threadIdx.x) * 2;
  mine[0] = fixed[threadIdx.x];
  mine[1] = dynamic[threadIdx.x];
  fixed[threadIdx.x] = dynamic[threadIdx.x] = 1.0f;
}

void memory_that_nothing_wrote_is_nan() {
  const OwnedStream stream;
  DeviceArray<float> out(3 * 64 * 2);
  for (const float x : out.host(stream)) check(x != x, "new device memory");
  launch(read_unwritten, dim3(3), dim3(64), 64 * sizeof(float), stream, out.data());
  for (const float x : out.host(stream)) check(x != x, "shared memory of a new block");
}

void threads_of_the_host_take_turns() {
  const std::vector<float> expected = expected_row_sums();
  std::vector<size_t> wrong(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < wrong.size(); ++i)
    threads.emplace_back([&, i] {
      const OwnedStream stream;
      for (int round = 0; round < (race_check_builds ? 1 : 20); ++round) wrong[i] += differing(run_row_sums<0>(stream), expected);
    });
  for (std::thread& thread : threads) thread.join();
  for (const size_t n : wrong) check_equal(n, size_t{0}, "differing values");
}

void arrays_are_copied() {
  const OwnedStream stream;
  const DeviceArray<float> a({1.0f, 2.0f, 3.0f}, stream);
  DeviceArray<float> b(3), none;
  check_equal(reinterpret_cast<uintptr_t>(b.data()) % 256, uintptr_t{0}, "alignment");
  device_copy(b.data(), a.data(), 3, stream);
  const DeviceArray<float> moved = std::move(b);
  device_sync();
  check(moved.host(stream) == std::vector<float>({1.0f, 2.0f, 3.0f}), "values");
  check(none.host(stream).empty() && b.size() == 0, "an empty array");
}

}  // namespace

int main() {
  return run({{"barriers hold in every schedule", barriers_hold_in_every_schedule},
              {"warp barriers hold in every schedule", warp_barriers_hold_in_every_schedule},
              {"dynamic shared memory holds a tile", dynamic_shared_memory_holds_a_tile},
              {"lanes exchange values", lanes_exchange_values},
              {"every thread of a grid runs once", every_thread_of_a_grid_runs_once},
              {"a seed is a schedule", a_seed_is_a_schedule},
              {"memory that nothing wrote is NaN", memory_that_nothing_wrote_is_nan},
              {"threads of the host take turns", threads_of_the_host_take_turns},
              {"arrays are copied", arrays_are_copied}});
}
