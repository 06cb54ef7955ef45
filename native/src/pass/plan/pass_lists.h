// Lists of a pass, in canonical order. Numbers count within the pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pass/plan/pass_plan.h"

namespace longhaul {

struct PassLists {
  std::vector<int32_t> target_outputs, target_tokens;  // [targets]
  // The targets of each output: output_targets[output_starts[i]] to output_targets[output_starts[i + 1] − 1].
  std::vector<int32_t> output_starts, output_targets;
  // The rows of each token, likewise, and the token's number in PassPlan::distinct_tokens.
  std::vector<int32_t> token_starts, token_rows, token_slots;

  PassLists(const PassPlan& plan, const PassRange& pass, std::span<const int32_t> tokens_of_targets);
};

}  // namespace longhaul
