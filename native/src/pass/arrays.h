// Index arrays where a device reads them.
#pragma once

#include "pass/feed_rows.h"
#include "pass/plan/pass_lists.h"

namespace longhaul {

/// Of a pass over a forest.
template <class Device>
struct PassArrays {
  using Indices = typename Device::template Buffer<int32_t>;

  Indices tokens, positions;  // [rows]
  Indices output_rows;        // [outputs]
  Indices target_outputs, target_tokens, output_starts, output_targets, token_starts, token_rows, token_slots;  // see PassLists
  int distinct_tokens = 0;
  typename Device::Arrays own;

  void put(Device& device, const Forest& forest, const PassPlan& plan, const PassRange& pass, std::span<const int32_t> tokens_of_targets) {
    const PassLists lists(plan, pass, tokens_of_targets);
    device.put(std::span(forest.tokens).subspan(size_t(pass.first_row), size_t(pass.rows)), tokens);
    device.put(std::span(forest.positions).subspan(size_t(pass.first_row), size_t(pass.rows)), positions);
    device.put(std::span(plan.output_pass_rows).subspan(size_t(pass.first_output), size_t(pass.outputs)), output_rows);
    device.put(lists.target_outputs, target_outputs);
    device.put(lists.target_tokens, target_tokens);
    device.put(lists.output_starts, output_starts);
    device.put(lists.output_targets, output_targets);
    device.put(lists.token_starts, token_starts);
    device.put(lists.token_rows, token_rows);
    device.put(lists.token_slots, token_slots);
    distinct_tokens = int(lists.token_slots.size());
    device.lay_out(own, forest, plan, pass);
  }
};

/// Of a call of `extend`.
template <class Device>
struct FeedArrays {
  typename Device::template Buffer<int32_t> tokens, positions, wanted, kept;
  typename Device::FeedArrays own;

  void put(Device& device, const FeedRows& rows) {
    device.put(rows.tokens, tokens);
    device.put(rows.positions, positions);
    device.put(rows.wanted, wanted);
    device.lay_out(own, rows);
  }
};

}  // namespace longhaul
