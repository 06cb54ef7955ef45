#include "cuda/device/emulated/barrier.h"

#include <cstring>

#include "cuda/device/emulated/sanitizer.h"
#include "cuda/device/emulated/schedule.h"

namespace longhaul::cuda::emulated {
namespace {

bool same(const Location& a, const Location& b) {
  if (std::memcmp(&a, &b, sizeof a) == 0) return true;  // the usual case, in one comparison
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

void wait(State state, const char* operation, const Location& location) {
  Fiber* fiber = current;
  fiber->state = state;
  fiber->operation = operation;
  fiber->location = location;
  park();
}

}  // namespace

void block_barrier(Location location) {
  require_kernel("__syncthreads", location);
  Fiber* fiber = current;
  if (block.arrived == 0)
    block.location = location;
  else if (!same(block.location, location))
    fail("barrier divergence: at __syncthreads " + text_of(location) + " while others wait at " + text_of(block.location));
  char* object = &block.sync_object[fiber->block_barriers++ & 1];
  release(object);
  if (++block.arrived == block.threads) {
    block.arrived = 0;
    for (int i = 0; i < block.warp_count; ++i) block.warps[i].ready = ~0u;
    for (int i = 0; i < block.threads; ++i) block.fibers[i].state = State::ready;
    if (block.seed) {
      shuffle_orders();
      leave_for_another_warp();
    }
  } else {
    wait(State::at_block_barrier, "__syncthreads", location);
  }
  acquire(object);
}

void meet_warp(const char* operation, Location location, void (*finish)(Warp&)) {
  Warp& warp = *current->warp;
  if (warp.arrived == 0) {
    warp.operation = operation;
    warp.location = location;
  } else if (!same(warp.location, location)) {
    fail(std::string("warp divergence: at ") + operation + " " + text_of(location) + " while lanes of its warp wait at " + warp.operation +
         " " + text_of(warp.location));
  }
  if (++warp.arrived == warp_lanes) {
    finish(warp);
    warp.arrived = 0;
    warp.ready = ~0u;
    for (Fiber* lane : warp.lanes) lane->state = State::ready;
    if (block.seed && (next_random() & 7) == 0) leave_for_another_warp();
  } else {
    wait(State::at_warp_operation, operation, location);
  }
}

void warp_barrier(unsigned mask, Location location) {
  require_kernel("__syncwarp", location);
  require_full_mask(mask, "__syncwarp", location);
  Fiber* fiber = current;
  char* object = &fiber->warp->sync_object[fiber->warp_barriers++ & 1];
  release(object);
  meet_warp("__syncwarp", location, [](Warp&) {});
  acquire(object);
}

void require_full_mask(unsigned mask, const char* operation, Location location) {
  if (mask != ~0u) fail(std::string(operation) + " " + text_of(location) + ": only full masks");
}

void exit_thread() {
  release(&block.exit_object);
  current->state = State::exited;
  ++block.exited;
  park();
  __builtin_unreachable();
}

void fail_stuck() {
  std::string text = "barrier divergence: " + std::to_string(block.exited) + " of " + std::to_string(block.threads) + " threads exited";
  for (const State state : {State::exited, State::at_block_barrier, State::at_warp_operation})
    for (int i = 0; i < block.threads; ++i) {
      const Fiber& fiber = block.fibers[i];
      if (fiber.state != state) continue;
      const std::string thread = "thread " + text_of(fiber.thread_index);
      text += state == State::exited ? ", the first of them " + thread
                                     : "; " + thread + " waits at " + fiber.operation + " " + text_of(fiber.location);
      break;
    }
  fail(text);
}

}  // namespace longhaul::cuda::emulated
