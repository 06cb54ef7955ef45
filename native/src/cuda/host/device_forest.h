// The attention of one pass over a forest, as the device reads it. Numbers count within the pass unless said otherwise; what is in a pass
// is PassPlan's.
#pragma once

#include <vector>

#include "cuda/host/device_queries.h"
#include "cuda/kernels/attention/attention_backward.h"
#include "pass/plan/forest.h"
#include "pass/plan/pass_plan.h"

namespace longhaul::cuda {

/// The queries of a pass in one kind of layer, and the keys that they give gradients to.
struct ForestQueries : DeviceQueries {
  int key_tiles = 0;
  Buffer<KeyTile> key_tile_room;
  Buffer<KeyReader> readers;
};

struct DeviceForestPass {
  Buffer<int32_t> chains;      // of all segments: rows of the forest
  ForestQueries all, outputs;  // of layers below the last; of the last

  void put(const Forest& forest, const PassPlan& plan, const PassRange& pass, int group, Stream stream);

 private:
  void put_queries(const PassPlan& plan, const PassRange& pass, bool of_outputs, std::span<const int32_t> query_rows,
                   std::span<const int32_t> query_places, const std::vector<int>& chain_starts, int group, Stream stream);
};

}  // namespace longhaul::cuda
