#include "cuda/host/device_forest.h"

#include <algorithm>
#include <numeric>

namespace longhaul::cuda {

void DeviceForestPass::put(const Forest& forest, const PassPlan& plan, const PassRange& pass, std::span<const int32_t> tokens_of_targets,
                           int group, Stream stream) {
  const auto part = [](const std::vector<int32_t>& values, int first, int count) {
    return std::span<const int32_t>(values).subspan(size_t(first), size_t(count));
  };
  tokens.put(part(forest.tokens, pass.first_row, pass.rows), stream);
  positions.put(part(forest.positions, pass.first_row, pass.rows), stream);
  output_rows.put(part(plan.output_pass_rows, pass.first_output, pass.outputs), stream);

  std::vector<int32_t> rows, chain;
  std::vector<int> starts;
  for (int s = pass.first_segment; s < pass.first_segment + pass.segments; ++s) {
    plan.chain(s, chain);
    starts.push_back(int(rows.size()));
    rows.insert(rows.end(), chain.begin(), chain.end());
  }
  chains.put(rows, stream);
  std::vector<int32_t> counting(size_t(pass.rows));
  std::iota(counting.begin(), counting.end(), 0);
  put_queries(plan, pass, false, counting, part(forest.positions, pass.first_row, pass.rows), starts, group, stream);
  put_queries(plan, pass, true, part(plan.output_pass_rows, pass.first_output, pass.outputs),
              part(plan.output_positions, pass.first_output, pass.outputs), starts, group, stream);

  std::vector<int32_t> outputs_of, tokens_of, by_output, output_first{0};
  for (int t = pass.first_target; t < pass.first_target + pass.targets; ++t) {
    outputs_of.push_back(plan.target_outputs[size_t(t)] - pass.first_output);
    tokens_of.push_back(tokens_of_targets[size_t(plan.target_order[size_t(t)])]);
  }
  for (int o = pass.first_output; o < pass.first_output + pass.outputs; ++o) {
    for (int t = 0; t < plan.targets_of(o); ++t) by_output.push_back(plan.output_targets[size_t(o)] - pass.first_target + t);
    output_first.push_back(int32_t(by_output.size()));
  }
  target_outputs.put(outputs_of, stream);
  target_tokens.put(tokens_of, stream);
  output_starts.put(output_first, stream);
  output_targets.put(by_output, stream);
  put_tokens(plan, pass, stream);
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

/// Pieces go from the last to the first, rows within a piece from the first to the last.
void DeviceForestPass::put_tokens(const PassPlan& plan, const PassRange& pass, Stream stream) {
  std::vector<int32_t> order;
  for (const RowRange& piece : plan.pieces(pass, false))
    for (int row = piece.first; row < piece.first + piece.count; ++row) order.push_back(row);
  const auto slot_of = [&](int32_t row) { return plan.token_slots[size_t(pass.first_row + row)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return slot_of(a) < slot_of(b); });
  std::vector<int32_t> slots, starts;
  for (size_t i = 0; i < order.size(); ++i)
    if (i == 0 || slot_of(order[i]) != slot_of(order[i - 1])) {
      slots.push_back(slot_of(order[i]));
      starts.push_back(int32_t(i));
    }
  starts.push_back(int32_t(order.size()));
  tokens_here = int(slots.size());
  token_rows.put(order, stream);
  token_slots.put(slots, stream);
  token_starts.put(starts, stream);
}

}  // namespace longhaul::cuda
