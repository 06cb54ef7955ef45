// `extend` on the device: some rows through all layers, and a draw behind each feed that wants logits.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "cuda/host/cuda_device.h"
#include "cuda/host/device_cache.h"
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/head.h"
#include "model/inference/sample.h"

namespace longhaul::cuda {

/// Most rows of logits that exist at once: 256 MiB, but 16 rows.
inline int most_logit_rows(int vocab) { return std::max(int((size_t{256} << 20) / (size_t(vocab) * sizeof(float))), 16); }

/// Keeps its working memory between calls.
class DeviceExtension {
 public:
  DeviceExtension(DevicePolicies& policies, Stream stream) : stream_(stream), device_(policies, stream) {}

  /// The feeds must be valid. draws, drawn [feeds with wanted logits], in feed order.
  void run(const Policy& policy, const DeviceCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
           std::span<Drawn> drawn);

 private:
  /// Rows that attend in one layer.
  struct Queries {
    int count = 0, tile_rows = 0, tiles = 0;
    Buffer<int32_t> rows, places;
    Buffer<AttentionTile> tile_room;
  };

  void put_rows(std::span<const Feed> feeds);
  void put_queries(Queries& queries, const std::vector<QuerySpan>& spans, const std::vector<int32_t>& rows,
                   const std::vector<int32_t>& places, int group);
  void project(const DeviceCache& cache, int layer);
  void attend_and_transform(const DeviceCache& cache, int layer, Queries& queries);
  void draw(std::span<const DrawRequest> draws, std::span<Drawn> drawn);

  Stream stream_;
  CudaDevice device_;
  int rows_ = 0, wanted_ = 0;
  Buffer<int32_t> tokens_, positions_, stores_, entries_;
  Queries all_, last_;
  Buffer<float> hidden_, kept_, qkv_, attention_, logits_;
  Buffer<RowDraw> row_draws_;
  Buffer<DrawnToken> drawn_;
};

}  // namespace longhaul::cuda
