// What attends to what, as the device reads it.
#pragma once

#include <span>
#include <vector>

#include "cuda/host/buffer.h"
#include "cuda/kernels/attention/attention.h"
#include "pass/feed_rows.h"

namespace longhaul::cuda {

/// Queries that attend in one launch.
struct DeviceQueries {
  int count = 0, tiles = 0, tile_rows = many_tile_rows;
  Buffer<int32_t> rows, places;
  Buffer<AttentionTile> tile_room;

  void put(std::span<const QuerySpan> spans, std::span<const int32_t> query_rows, std::span<const int32_t> query_places, int group,
           Stream stream);
};

/// Where the rows of a call of `extend` are stored, and what they attend to.
struct DeviceFeedArrays {
  Buffer<int32_t> stores;   // [rows]: places in the cache
  Buffer<int32_t> entries;  // blocks of each past
  DeviceQueries queries;

  void put(const FeedRows& rows, int group, Stream stream);
};

}  // namespace longhaul::cuda
