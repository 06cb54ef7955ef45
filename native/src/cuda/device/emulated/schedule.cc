#include "cuda/device/emulated/schedule.h"

#include "cuda/device/emulated/fiber.h"

namespace longhaul::cuda::emulated {
namespace {

template <class T>
void permute(T* items, int n) {
  for (int i = n - 1; i > 0; --i) {
    const int j = int(next_random() % uint64_t(i + 1));
    const T item = items[i];
    items[i] = items[j];
    items[j] = item;
  }
}

Fiber* first_ready(const Warp& warp) { return warp.lanes[warp.order[__builtin_ctz(warp.ready)]]; }

// First the lanes after this one in its warp's order, then the warps after it: a warp advances together as long as nothing stops it.
Fiber* next_ready(const Fiber* fiber) {
  const Warp& warp = *fiber->warp;
  if (warp.ready) {
    const uint32_t behind = warp.ready & ~((2u << fiber->position) - 1);
    return behind ? warp.lanes[warp.order[__builtin_ctz(behind)]] : first_ready(warp);
  }
  for (int i = 1; i < block.warp_count; ++i) {
    const Warp& other = block.warps[block.warp_order[(warp.index + i) % block.warp_count]];
    if (other.ready) return first_ready(other);
  }
  return &block.launcher;
}

}  // namespace

// xorshift64*: it is short, and a few of its numbers suffice to make launches differ.
uint64_t next_random() {
  uint64_t& x = block.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x * 0x2545F4914F6CDD1DULL >> 11;
}

void start_schedule() {
  const uint64_t place = (uint64_t(block.index.z) * block.grid.y + block.index.y) * block.grid.x + block.index.x;
  block.random = block.seed * 0x9E3779B97F4A7C15ULL + (place + 1) * 0xBF58476D1CE4E5B9ULL;
  if (!block.random) block.random = 1;  // zero would stay zero
  for (int w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    for (int i = 0; i < warp_lanes; ++i) {
      warp.order[i] = uint8_t(i);
      warp.lanes[i]->position = i;
    }
    warp.index = block.warp_order[w] = w;
  }
  if (block.seed) shuffle_orders();
}

void shuffle_orders() {
  for (int w = 0; w < block.warp_count; ++w) {
    Warp& warp = block.warps[w];
    permute(warp.order, warp_lanes);
    for (int i = 0; i < warp_lanes; ++i) warp.lanes[warp.order[i]]->position = i;
  }
  permute(block.warp_order, block.warp_count);
  for (int w = 0; w < block.warp_count; ++w) block.warps[block.warp_order[w]].index = w;
}

void park() {
  Fiber* fiber = current;
  fiber->warp->ready &= ~(1u << fiber->position);
  switch_to(next_ready(fiber));
}

void leave_for_another_warp() {
  const int first = int(next_random() % uint64_t(block.warp_count));
  for (int i = 0; i < block.warp_count; ++i) {
    const Warp& other = block.warps[(first + i) % block.warp_count];
    if (other.ready && &other != current->warp) return switch_to(first_ready(other));
  }
}

}  // namespace longhaul::cuda::emulated
