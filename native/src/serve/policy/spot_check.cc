#include "serve/policy/spot_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "backend/backend.h"
#include "backend/device_error.h"
#include "base/float_text.h"

namespace longhaul {
namespace {

/// On a longer path the check would take longer than the GPU's update.
constexpr int most_rows = 4096;

int position_of(const MiniBatch& mini, std::size_t target) { return mini.forest.positions[std::size_t(mini.target_rows[target])]; }

/// The first target, from the chosen one on, with a path that is short enough; if there is none, the target with the shortest path.
std::size_t chosen_target(const MiniBatch& mini, std::uint64_t choice) {
  const std::size_t count = mini.target_rows.size(), first = std::size_t(choice % count);
  std::size_t shortest = first;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t target = (first + i) % count;
    if (position_of(mini, target) < most_rows) return target;
    if (position_of(mini, target) < position_of(mini, shortest)) shortest = target;
  }
  return shortest;
}

/// The nodes from a root to this one.
std::vector<int> path_to(const Forest& forest, int node) {
  std::vector<int> path;
  for (; node >= 0; node = forest.nodes[std::size_t(node)].parent) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

int node_of(const Forest& forest, int row) {
  for (std::size_t n = 0; n < forest.nodes.size(); ++n) {
    const ForestNode& node = forest.nodes[n];
    if (row >= node.first_row && row < node.first_row + node.rows) return int(n);
  }
  return -1;
}

}  // namespace

void require_same_logprobs(const Policy& policy, const MiniBatch& mini, std::span<const float> logprobs, double temperature,
                           std::uint64_t choice, const Oracle& oracle, ThreadPool& pool, const OnAdvance& advanced) {
  if (mini.target_rows.empty()) return;
  const std::size_t last = chosen_target(mini, choice);
  std::vector<std::int32_t> tokens, path_rows;
  for (const int n : path_to(mini.forest, node_of(mini.forest, mini.target_rows[last]))) {
    const ForestNode& node = mini.forest.nodes[std::size_t(n)];
    for (int row = node.first_row; row < node.first_row + node.rows && row <= mini.target_rows[last]; ++row) {
      tokens.push_back(mini.forest.tokens[std::size_t(row)]);
      path_rows.push_back(row);
    }
  }
  std::vector<std::size_t> targets;
  std::vector<std::int32_t> rows, target_tokens;
  for (std::size_t t = 0; t < mini.target_rows.size(); ++t) {
    const auto position = std::size_t(position_of(mini, t));
    if (position >= path_rows.size() || path_rows[position] != mini.target_rows[t]) continue;
    targets.push_back(t);
    rows.push_back(std::int32_t(position));
    target_tokens.push_back(mini.target_tokens[t]);
  }

  Forest path;
  path.add(-1, tokens);
  std::vector<float> expected(targets.size());
  const std::unique_ptr<Backend> backend = oracle.make_backend(pool);
  backend->hold({std::shared_ptr<const Policy>(), &policy});
  const std::unique_ptr<Training> passes = backend->make_training();
  passes->prepare({.pass_rows = piece_rows, .recompute = false}, path.rows());
  passes->begin(policy, path, rows, target_tokens, float(temperature), advanced, {});
  passes->logprobs(expected);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const float found = logprobs[targets[i]];
    if (std::bit_cast<std::uint32_t>(found) == std::bit_cast<std::uint32_t>(expected[i])) continue;
    // The bits of a NaN differ between processors. An update with one is refused as not finite.
    if (std::isnan(found) && std::isnan(expected[i])) continue;
    throw WrongValue("the log-prob of token " + std::to_string(target_tokens[i]) + " at position " + std::to_string(rows[i]) + " of sample " +
                     std::to_string(mini.target_samples[targets[i]]) + " is " + text_with_bits(found) + " on the device and " +
                     text_with_bits(expected[i]) + " on the " + oracle.name);
  }
}

}  // namespace longhaul
