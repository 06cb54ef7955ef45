// One pass over a forest, as the device reads it: index arrays of rows, outputs and targets, tiles of attention. Numbers count within the
// pass unless said otherwise; what is in a pass is PassPlan's.
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
  Buffer<int32_t> tokens, positions;  // [rows]
  Buffer<int32_t> chains;             // of all segments: rows of the forest
  ForestQueries all, outputs;             // of layers below the last; of the last
  Buffer<int32_t> output_rows;        // [outputs]
  Buffer<int32_t> output_starts, output_targets;  // targets of each output, in order
  Buffer<int32_t> target_outputs, target_tokens;  // [targets], in canonical order
  // Rows of each distinct token, in canonical order, and the token's number in PassPlan::distinct_tokens.
  Buffer<int32_t> token_starts, token_rows, token_slots;
  int tokens_here = 0;

  void put(const Forest& forest, const PassPlan& plan, const PassRange& pass, std::span<const int32_t> tokens_of_targets, int group,
           Stream stream);

 private:
  void put_queries(const PassPlan& plan, const PassRange& pass, bool of_outputs, std::span<const int32_t> query_rows,
                   std::span<const int32_t> query_places, const std::vector<int>& chain_starts, int group, Stream stream);
  void put_tokens(const PassPlan& plan, const PassRange& pass, Stream stream);
};

}  // namespace longhaul::cuda
