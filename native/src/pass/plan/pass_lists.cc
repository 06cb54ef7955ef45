#include "pass/plan/pass_lists.h"

#include <algorithm>

namespace longhaul {

PassLists::PassLists(const PassPlan& plan, const PassRange& pass, std::span<const int32_t> tokens_of_targets) : output_starts{0} {
  for (int t = pass.first_target; t < pass.first_target + pass.targets; ++t) {
    target_outputs.push_back(plan.target_outputs[size_t(t)] - pass.first_output);
    target_tokens.push_back(tokens_of_targets[size_t(plan.target_order[size_t(t)])]);
  }
  for (int o = pass.first_output; o < pass.first_output + pass.outputs; ++o) {
    for (int t = 0; t < plan.targets_of(o); ++t) output_targets.push_back(plan.output_targets[size_t(o)] - pass.first_target + t);
    output_starts.push_back(int32_t(output_targets.size()));
  }
  // Pieces go from the last to the first, rows within a piece from the first to the last.
  for (const RowRange& piece : plan.pieces(pass, false))
    for (int row = piece.first; row < piece.first + piece.count; ++row) token_rows.push_back(row);
  const auto slot_of = [&](int32_t row) { return plan.token_slots[size_t(pass.first_row + row)]; };
  std::stable_sort(token_rows.begin(), token_rows.end(), [&](int32_t a, int32_t b) { return slot_of(a) < slot_of(b); });
  for (size_t i = 0; i < token_rows.size(); ++i) {
    if (i > 0 && slot_of(token_rows[i]) == slot_of(token_rows[i - 1])) continue;
    token_slots.push_back(slot_of(token_rows[i]));
    token_starts.push_back(int32_t(i));
  }
  token_starts.push_back(int32_t(token_rows.size()));
}

}  // namespace longhaul
