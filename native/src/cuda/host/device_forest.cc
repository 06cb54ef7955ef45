#include "cuda/host/device_forest.h"

namespace longhaul::cuda {

void DeviceForestPass::put(const Forest& forest, const PassPlan& plan, const PassRange& pass, int group, Stream stream) {
  const auto part = [](const std::vector<int32_t>& values, int first, int count) {
    return std::span<const int32_t>(values).subspan(size_t(first), size_t(count));
  };
  std::vector<int32_t> rows, chain;
  std::vector<int> starts;
  for (int s = pass.first_segment; s < pass.first_segment + pass.segments; ++s) {
    plan.chain(s, chain);
    starts.push_back(int(rows.size()));
    rows.insert(rows.end(), chain.begin(), chain.end());
  }
  chains.put(rows, stream);
  put_queries(plan, pass, false, part(plan.counting, 0, pass.rows), part(forest.positions, pass.first_row, pass.rows), starts, group, stream);
  put_queries(plan, pass, true, part(plan.output_pass_rows, pass.first_output, pass.outputs),
              part(plan.output_positions, pass.first_output, pass.outputs), starts, group, stream);
}

void DeviceForestPass::put_queries(const PassPlan& plan, const PassRange& pass, bool of_outputs, std::span<const int32_t> query_rows,
                                   std::span<const int32_t> query_places, const std::vector<int>& chain_starts, int group, Stream stream) {
  ForestQueries& to = of_outputs ? outputs : all;
  if (query_rows.empty()) return;
  std::vector<QuerySpan> spans;
  std::vector<ForestSegment> segments;
  for (int s = 0; s < int(plan.segments.size()); ++s) {
    const Segment& segment = plan.segments[size_t(s)];
    ForestSegment one{segment.parent, segment.first_row, segment.rows, segment.position, 0, 0};
    if (s >= pass.first_segment && s < pass.first_segment + pass.segments) {
      one.first_query = of_outputs ? segment.first_output - pass.first_output : segment.first_row - pass.first_row;
      one.queries = of_outputs ? segment.outputs : segment.rows;
      if (one.queries > 0) spans.push_back({one.first_query, one.queries, chain_starts[size_t(s - pass.first_segment)]});
    }
    segments.push_back(one);
  }
  std::vector<int> order;
  for (int g = pass.first_group; g < pass.first_group + pass.groups; ++g) {
    const auto first = plan.group_segments.begin() + plan.groups[size_t(g)].first;
    order.insert(order.end(), first, first + plan.groups[size_t(g)].count);
  }
  to.put(spans, query_rows, query_places, group, stream);
  const KeyTiles keys = longhaul::cuda::key_tiles(segments, order);
  to.key_tiles = int(keys.tiles.size());
  to.key_tile_room.put(keys.tiles, stream);
  to.readers.put(keys.readers, stream);
}

}  // namespace longhaul::cuda
