#include "cuda/device/emulated/launch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "cuda/device/emulated/barrier.h"
#include "cuda/device/emulated/fiber.h"
#include "cuda/device/emulated/sanitizer.h"
#include "cuda/device/emulated/schedule.h"
#include "cuda/device/emulated/shared.h"
#include "cuda/device/emulated/tensor_core.h"

namespace longhaul::cuda {
namespace emulated {

Block block;
Fiber* current = &block.launcher;

namespace {

std::mutex one_grid;
// This OS thread runs a grid: its code is the launch's, or a kernel's.
thread_local bool launching = false;
uint64_t schedule_seed = 0;

size_t product(dim3 d) { return size_t(d.x) * d.y * d.z; }

void require(bool holds, const Location& location, const std::string& what) {
  if (!holds) throw Error("launch at " + text_of(location) + ": " + what);
}

void check_launch(dim3 grid, dim3 size, size_t shared_bytes, const LaunchStream& stream) {
  const Location& at = stream.location;
  require(stream.stream, at, "a null stream; make_stream() gives one");
  const size_t threads = product(size);
  require(threads > 0 && threads % warp_lanes == 0 && threads <= most_threads && size.z <= 64, at,
          "a block of " + text_of(size) + " threads; it must have a multiple of 32, at most 1024");
  require(product(grid) > 0 && grid.x <= 0x7FFFFFFFu && grid.y <= 65535 && grid.z <= 65535, at,
          "a grid of " + text_of(grid) + " blocks; it must have at least one, and at most (2147483647,65535,65535)");
  require(shared_bytes <= most_shared, at, std::to_string(shared_bytes) + " bytes of dynamic shared memory exceed 227 KiB");
}

void run_block(dim3 index) {
  block.index = index;
  block.exited = block.arrived = 0;
  block.error.clear();
  for (int i = 0; i < block.threads; ++i) {
    Fiber& fiber = block.fibers[i];
    const unsigned x = block.size.x, y = block.size.y, t = unsigned(i);
    fiber.thread_index = dim3(t % x, t / x % y, t / (x * y));
    fiber.warp = &block.warps[i / warp_lanes];
    fiber.lane = i % warp_lanes;
    fiber.state = State::ready;
    fiber.block_barriers = fiber.warp_barriers = 0;
    fiber.warp->lanes[fiber.lane] = &fiber;
  }
  for (int w = 0; w < block.warp_count; ++w) {
    block.warps[w].ready = ~0u;
    block.warps[w].arrived = 0;
  }
  start_schedule();
  start_shared();
  start_copies();
  start_fibers();
  const Warp& first = block.warps[block.warp_order[0]];
  switch_to(first.lanes[first.order[0]]);
  end_fibers();
  if (!block.error.empty()) throw Error(block.error);
  if (block.exited != block.threads) fail_stuck();
}

}  // namespace

std::string text_of(Location location) {
  const char* path = location.file_name();
  const char* slash = std::strrchr(path, '/');
  return std::string(slash ? slash + 1 : path) + ":" + std::to_string(location.line());
}

std::string text_of(dim3 index) {
  std::string text = "(";
  return text += std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

void fail(const std::string& what) {
  if (!launching) throw Error(what + ": outside of a kernel");
  const Fiber* fiber = current;
  const std::string thread = fiber == &block.launcher ? "" : "thread " + text_of(fiber->thread_index) + ", ";
  throw Error(what + "; " + thread + "block " + text_of(block.index) + ", seed " + std::to_string(block.seed) + ", launched at " +
              text_of(block.launched));
}

void fail_misaligned(const char* operation, Location location) {
  fail(std::string("misaligned vector access: ") + operation + " " + text_of(location));
}

void require_kernel(const char* operation, Location location) {
  if (!launching) fail(std::string(operation) + " " + text_of(location));
}

void run_grid(dim3 grid, dim3 size, size_t shared_bytes, const LaunchStream& stream, void (*body)(void*), void* argument) {
  if (launching) fail("launch at " + text_of(stream.location) + ": a kernel launches a kernel");
  check_launch(grid, size, shared_bytes, stream);
  const std::lock_guard<std::mutex> lock(one_grid);
  if (!block.fibers) {
    // Both or none: memory may be short for the second.
    auto fibers = std::make_unique<Fiber[]>(most_threads);
    block.warps = new Warp[most_warps];
    block.fibers = fibers.release();
  }
  block.grid = grid;
  block.size = size;
  block.threads = int(product(size));
  block.warp_count = block.threads / warp_lanes;
  block.seed = schedule_seed;
  block.launched = stream.location;
  block.dynamic_bytes = shared_bytes;
  block.body = body;
  block.body_argument = argument;

  std::vector<uint32_t> order(product(grid));
  for (size_t i = 0; i < order.size(); ++i) order[i] = uint32_t(i);
  if (block.seed) std::shuffle(order.begin(), order.end(), std::mt19937_64(block.seed));
  struct Running {
    Running() { launching = true; }
    ~Running() {
      acquire(&block.exit_object);
      end_shared();
      launching = false;
    }
  } running;
  for (const uint32_t i : order) run_block(dim3(i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y));
}

}  // namespace emulated

void set_schedule(uint64_t seed) {
  const std::lock_guard<std::mutex> lock(emulated::one_grid);
  emulated::schedule_seed = seed;
}

}  // namespace longhaul::cuda
