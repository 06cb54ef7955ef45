#include "cuda/device/emulated/tensor_core.h"

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/tensor_core.h"
#include "cuda/device/emulated/barrier.h"
#include "cuda/device/emulated/sanitizer.h"

namespace longhaul::cuda {
namespace emulated {
namespace {

float half_of(uint32_t pair, int index) { return std::bit_cast<float>(index == 0 ? pair << 16 : pair & 0xFFFF0000u); }

void multiply(Warp& warp) {
  constexpr int depth = 16;
  float a[16][depth], b[8][depth];
  for (int k = 0; k < depth; ++k) {
    const int lane = k % 8 / 2, word = k / 8, half = k % 2;
    for (int row = 0; row < 16; ++row) a[row][k] = half_of(warp.operands[row % 8 * 4 + lane][word * 2 + row / 8], half);
    for (int column = 0; column < 8; ++column) b[column][k] = half_of(warp.operands[column * 4 + lane][4 + word], half);
  }
  for (int lane = 0; lane < warp_lanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      warp.sums[lane][i] = tensor_core_sum(warp.sums[lane][i], a[row], 1, b[column], 1, depth);
    }
}

bool is_shared(const void* p, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(p);
  const auto within = [&](const unsigned char* from, size_t size) { return at >= from && at + bytes <= from + size; };
  return within(block.dynamic_shared, block.dynamic_bytes) || within(block.static_shared, block.static_used);
}

void require_shared(const char* operation, const void* p, Location location) {
  require_aligned(p, 16, operation, location);
  if (!is_shared(p, 16)) fail(std::string(operation) + " " + text_of(location) + ": the address is not in shared memory");
}

/// Each lane's 16 bytes as words 0 to 3 of `operands`.
void meet_with_rows(const char* operation, const void* row, Location location, void (*finish)(Warp&)) {
  require_kernel(operation, location);
  require_shared(operation, row, location);
  Warp& warp = *current->warp;
  std::memcpy(warp.operands[current->lane], row, 16);
  meet_warp(operation, location, finish);
}

struct Copy {
  void* to;
  unsigned char bytes[16];
};
/// Of a thread: groups that have not arrived, the oldest first, and the open group.
struct Copies {
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;
};
Copies copies[most_threads];
/// Most kernels copy nothing, and have nothing to forget.
bool some_copies = false;

Copies& own_copies() {
  some_copies = true;
  return copies[current - block.fibers];
}

}  // namespace

void wait_for_copies(int groups) {
  require_kernel("wait_for_copies", Location::current());
  Copies& own = own_copies();
  while (own.groups.size() > size_t(groups)) {
    for (const Copy& copy : own.groups.front()) std::memcpy(copy.to, copy.bytes, sizeof copy.bytes);
    own.groups.erase(own.groups.begin());
  }
}

void start_copies() {
  if (!std::exchange(some_copies, false)) return;
  for (Copies& own : copies) own = {};
}

}  // namespace emulated

using namespace emulated;

void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Location location) {
  require_kernel("mma", location);
  Warp& warp = *current->warp;
  const int lane = current->lane;
  std::memcpy(warp.operands[lane], a, sizeof a);
  std::memcpy(warp.operands[lane] + 4, b, sizeof b);
  std::memcpy(warp.sums[lane], d, sizeof d);
  meet_warp("mma", location, multiply);
  std::memcpy(d, warp.sums[lane], sizeof d);
}

void load_matrices(unsigned (&r)[4], const void* row, Location location) {
  meet_with_rows("load_matrices", row, location, [](Warp& warp) {
    uint32_t out[warp_lanes][4];
    for (int lane = 0; lane < warp_lanes; ++lane)
      for (int i = 0; i < 4; ++i) out[lane][i] = warp.operands[i * 8 + lane / 4][lane % 4];
    for (int lane = 0; lane < warp_lanes; ++lane) std::memcpy(warp.operands[lane], out[lane], sizeof out[lane]);
  });
  std::memcpy(r, current->warp->operands[current->lane], sizeof r);
}

void load_transposed_matrices(unsigned (&r)[4], const void* row, Location location) {
  meet_with_rows("load_transposed_matrices", row, location, [](Warp& warp) {
    const auto value = [&](int matrix, int row, int column) {
      return warp.operands[matrix * 8 + row][column / 2] >> (column % 2 * 16) & 0xFFFFu;
    };
    uint32_t out[warp_lanes][4];
    for (int lane = 0; lane < warp_lanes; ++lane)
      for (int i = 0; i < 4; ++i) out[lane][i] = value(i, lane % 4 * 2, lane / 4) | value(i, lane % 4 * 2 + 1, lane / 4) << 16;
    for (int lane = 0; lane < warp_lanes; ++lane) std::memcpy(warp.operands[lane], out[lane], sizeof out[lane]);
  });
  std::memcpy(r, current->warp->operands[current->lane], sizeof r);
}

void copy_async(void* shared, const void* global, bool there, Location location) {
  require_kernel("copy_async", location);
  require_shared("copy_async", shared, location);
  require_aligned(global, 16, "copy_async", location);
  Copy copy{shared, {}};
  if (there) std::memcpy(copy.bytes, global, sizeof copy.bytes);
  own_copies().open.push_back(copy);
}

void commit_copies() {
  require_kernel("commit_copies", Location::current());
  Copies& own = own_copies();
  own.groups.push_back(std::move(own.open));
  own.open.clear();
}

unsigned bf16_pair(float low, float high) {
  const auto rounded = [](float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  };
  return rounded(low) | rounded(high) << 16;
}

}  // namespace longhaul::cuda
