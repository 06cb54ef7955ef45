// Kernels and launches that break a rule end with an error that names the places, the thread, the block and the seed.
#include "cuda/device/device.h"
#include "cuda/emulator_kernels.h"
#include "support/check.h"

using namespace longhaul::cuda;
using namespace longhaul::test;

namespace {

using emulated::Error;

Stream stream() {
  static const OwnedStream one;
  return one;
}

/// How errors name a line of this file.
const std::string this_file = "emulator_errors_test.cc:";
std::string here(int line) { return this_file + std::to_string(line); }

// The thread sanitizer takes 0.5 ms to make a CUDA thread.
constexpr uint64_t last_seed = race_check_builds ? 1 : 4;

/// Runs `action` in natural order and in other schedules. Each must end with an error that has all these parts.
void check_error(const std::string& what, const std::vector<std::string>& parts, const std::function<void()>& action) {
  for (uint64_t seed = 0; seed <= last_seed; ++seed) {
    set_schedule(seed);
    for (const std::string& part : parts) check_throws<Error>(action, part, what);
  }
  set_schedule(0);
}

/// Also demands what every error of a kernel says.
void check_kernel_error(const std::string& what, std::vector<std::string> parts, const std::function<void()>& action) {
  parts.insert(parts.end(), {"block (1,0,0)", "launched at " + this_file});
  check_error(what, parts, action);
  set_schedule(3);
  check_throws<Error>(action, "seed 3", what);
  set_schedule(0);
}

const dim3 two_blocks(2), threads_64(64);

__global__ void half_at_another_barrier() {
  if (blockIdx.x == 1 && threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
constexpr int first_barrier = __LINE__ - 4, second_barrier = __LINE__ - 2;

void barriers_diverge() {
  check_kernel_error("two barriers",
                     {"barrier divergence: at __syncthreads", "thread (", here(first_barrier), here(second_barrier)},
                     [] { launch(half_at_another_barrier, two_blocks, threads_64, 0, stream()); });
}

__global__ void one_leaves_early() {
  if (blockIdx.x == 1 && threadIdx.x == 40) return;
  __syncthreads();
}
constexpr int missed_barrier = __LINE__ - 2;

void a_thread_leaves_before_a_barrier() {
  check_kernel_error("early exit",
                     {"barrier divergence: 1 of 64 threads exited, the first of them thread (40,0,0)",
                      "waits at __syncthreads " + here(missed_barrier)},
                     [] { launch(one_leaves_early, two_blocks, threads_64, 0, stream()); });
}

__global__ void half_shuffle(float* out) {
  if (blockIdx.x == 0 || threadIdx.x % 32 < 16) out[threadIdx.x] = sum16(float(threadIdx.x));
  __syncthreads();
}
constexpr int half_barrier = __LINE__ - 2;

void half_a_warp_is_at_a_shuffle() {
  DeviceArray<float> out(64);
  check_kernel_error("half a warp",
                     {"barrier divergence: 0 of 64 threads exited", "waits at __syncthreads " + here(half_barrier),
                      "waits at __shfl_xor_sync exact.h:"},
                     [&] { launch(half_shuffle, two_blocks, threads_64, 0, stream(), out.data()); });
}

__global__ void lone_shuffle(float* out) {
  if (blockIdx.x == 0 || threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_xor_sync(full_warp, 1.0f, 1);
}
constexpr int lone_operation = __LINE__ - 2;

void half_a_warp_has_left_before_a_shuffle() {
  DeviceArray<float> out(64);
  check_kernel_error("half a warp left",
                     {"barrier divergence: 32 of 64 threads exited, the first of them thread (16,0,0)",
                      "waits at __shfl_xor_sync " + here(lone_operation)},
                     [&] { launch(lone_shuffle, two_blocks, threads_64, 0, stream(), out.data()); });
}

__global__ void two_warp_operations(unsigned* out) {
  if (blockIdx.x == 1 && threadIdx.x % 2)
    __syncwarp();
  else
    out[threadIdx.x] = __ballot_sync(full_warp, 1);
}
constexpr int warp_barrier_line = __LINE__ - 4, ballot_line = __LINE__ - 2;

void lanes_are_at_different_operations() {
  DeviceArray<unsigned> out(64);
  check_error("two operations", {"warp divergence: at ", "__syncwarp " + here(warp_barrier_line), "__ballot_sync " + here(ballot_line)},
              [&] { launch(two_warp_operations, two_blocks, threads_64, 0, stream(), out.data()); });
}

template <int Rule>
__global__ void partial_operation(unsigned* out) {
  if (Rule == 0) __syncwarp(0xFFFFu);
  if (Rule == 1) out[threadIdx.x] = __shfl_sync(0xFFFFu, 1u, 0);
  if (Rule == 2) out[threadIdx.x] = __ballot_sync(0xFFFFu, 1);
  if (Rule == 3) out[threadIdx.x] = __shfl_xor_sync(full_warp, 1u, 1, 16);
}
constexpr int first_rule = __LINE__ - 5;

template <int Rule>
void check_partial(const std::string& part) {
  DeviceArray<unsigned> out(64);
  check_error("rule", {part, here(first_rule + Rule), "thread (", "block ("},
              [&] { launch(partial_operation<Rule>, two_blocks, threads_64, 0, stream(), out.data()); });
}

void only_whole_warps() {
  check_partial<0>("only full masks");
  check_partial<1>("only full masks");
  check_partial<2>("only full masks");
  check_partial<3>("only over a whole warp");
}

__global__ void misaligned(float* values, bool writes) {
  if (blockIdx.x == 1 && threadIdx.x == 9) {
    const float4 v = load<float4>(values + (writes ? 0 : 2));
    store(values + 1, v);
  }
}
constexpr int load_line = __LINE__ - 4, store_line = __LINE__ - 3;

void vectors_are_aligned() {
  DeviceArray<float> values(8);
  const auto run = [&](bool writes) { launch(misaligned, two_blocks, threads_64, 0, stream(), values.data(), writes); };
  check_kernel_error("load", {"misaligned vector access: load " + here(load_line), "thread (9,0,0)"}, [&] { run(false); });
  check_kernel_error("store", {"misaligned vector access: store " + here(store_line), "thread (9,0,0)"}, [&] { run(true); });
}

__global__ void nothing() {}
template <int Bytes>
__global__ void much_static() {
  SHARED(unsigned char, first, [Bytes]);
  SHARED(unsigned char, second, [32 * 1024]);
  if (threadIdx.x == 0) first[0] = second[0] = 0;
}
constexpr int second_slot = __LINE__ - 3;

void launches_fit_the_device() {
  const std::string at = "launch at " + this_file;
  const auto refused = [&](const std::string& part, dim3 grid, dim3 block, size_t shared, Stream on) {
    check_error(part, {at, part}, [&] { launch(nothing, grid, block, shared, on); });
  };
  refused("a null stream", 1, 32, 0, nullptr);
  refused("a block of (31,1,1) threads", 1, 31, 0, stream());
  refused("a block of (0,1,1) threads", 1, 0, 0, stream());
  refused("a block of (32,33,1) threads", 1, dim3(32, 33), 0, stream());
  refused("a block of (1,1,96) threads", 1, dim3(1, 1, 96), 0, stream());
  refused("a grid of (0,1,1) blocks", 0, 32, 0, stream());
  refused("a grid of (1,65536,1) blocks", dim3(1, 65536), 32, 0, stream());
  refused("232449 bytes of dynamic shared memory exceed 227 KiB", 1, 32, 227 * 1024 + 1, stream());
  launch(nothing, dim3(1), dim3(1024), 227 * 1024, stream());
  check_throws<Error>([] { device_copy<float>(nullptr, nullptr, 0, nullptr); }, "null stream", "copy");
}

void shared_memory_fits_the_device() {
  launch(much_static<16 * 1024>, dim3(1), dim3(32), 179 * 1024, stream());
  check_error("static", {"SHARED " + here(second_slot), "more than 48 KiB of static shared memory", "block (0,0,0)"},
              [] { launch(much_static<16 * 1024 + 16>, dim3(1), dim3(32), 0, stream()); });
  check_error("both", {"SHARED " + here(second_slot), "more than 227 KiB of static and dynamic shared memory"},
              [] { launch(much_static<16 * 1024>, dim3(1), dim3(32), 179 * 1024 + 1, stream()); });
}

__global__ void launches_again() { launch(nothing, dim3(1), dim3(32), 0, stream()); }

void kernels_run_in_launches_only() {
  check_throws<Error>([] { __syncthreads(); }, "__syncthreads " + here(__LINE__) + ": outside of a kernel", "barrier");
  check_throws<Error>([] { __syncwarp(); }, "outside of a kernel", "warp barrier");
  check_throws<Error>([] { __ballot_sync(full_warp, 1); }, "outside of a kernel", "ballot");
  check_throws<Error>([] { sum16(1.0f); }, "outside of a kernel", "shuffle");
  check_error("nested", {"a kernel launches a kernel"}, [] { launch(launches_again, dim3(1), dim3(32), 0, stream()); });
}

void a_launch_after_an_error_is_sound() {
  const std::vector<float> expected = expected_row_sums();
  for (uint64_t seed = 0; seed <= last_seed; ++seed) {
    set_schedule(seed);
    check_throws<Error>([] { launch(one_leaves_early, two_blocks, threads_64, 0, stream()); }, "barrier divergence", "faulty");
    check_same_bits(run_row_sums<0>(stream()), expected, "row sums after an error");
  }
  set_schedule(0);
}

}  // namespace

int main() {
  return run({{"threads at two barriers", barriers_diverge},
              {"a thread leaves before a barrier", a_thread_leaves_before_a_barrier},
              {"half a warp is at a shuffle, the rest at a barrier", half_a_warp_is_at_a_shuffle},
              {"half a warp has left before a shuffle", half_a_warp_has_left_before_a_shuffle},
              {"lanes are at different operations", lanes_are_at_different_operations},
              {"only whole warps", only_whole_warps},
              {"vectors are aligned", vectors_are_aligned},
              {"launches fit the device", launches_fit_the_device},
              {"shared memory fits the device", shared_memory_fits_the_device},
              {"kernels run in launches only", kernels_run_in_launches_only},
              {"a launch after an error is sound", a_launch_after_an_error_is_sound}});
}
