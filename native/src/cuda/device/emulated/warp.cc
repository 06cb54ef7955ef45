#include "cuda/device/emulated/warp.h"

#include "cuda/device/emulated/barrier.h"

namespace longhaul::cuda::emulated {

uint32_t shuffle(unsigned mask, uint32_t value, int source, int width, const char* operation, Location location) {
  require_kernel(operation, location);
  require_full_mask(mask, operation, location);
  if (width != warp_lanes) fail(std::string(operation) + " " + text_of(location) + ": only over a whole warp (width 32)");
  Warp& warp = *current->warp;
  const int lane = current->lane;
  warp.value[lane] = value;
  warp.source[lane] = uint32_t(source) & 31u;
  meet_warp(operation, location, [](Warp& all) {
    for (int i = 0; i < warp_lanes; ++i) all.result[i] = all.value[all.source[i]];
  });
  return warp.result[lane];
}

unsigned ballot(unsigned mask, int predicate, Location location) {
  require_kernel("__ballot_sync", location);
  require_full_mask(mask, "__ballot_sync", location);
  Warp& warp = *current->warp;
  const int lane = current->lane;
  warp.value[lane] = predicate != 0;
  meet_warp("__ballot_sync", location, [](Warp& all) {
    uint32_t bits = 0;
    for (int i = 0; i < warp_lanes; ++i) bits |= all.value[i] << i;
    for (uint32_t& result : all.result) result = bits;
  });
  return warp.result[lane];
}

}  // namespace longhaul::cuda::emulated
