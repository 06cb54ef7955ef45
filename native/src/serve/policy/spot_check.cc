#include "serve/policy/spot_check.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <vector>

#include "backend/cpu_backend.h"
#include "serve/protocol/request.h"

namespace longhaul {
namespace {

constexpr int most_rows = 1024;

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

std::string text_of(float value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.9g (bits %08x)", double(value), std::bit_cast<std::uint32_t>(value));
  return text;
}

}  // namespace

void require_same_logprobs(const Policy& policy, const MiniBatch& mini, std::span<const float> logprobs, double temperature,
                           const std::string& step_id, ThreadPool& pool, const OnAdvance& advanced) {
  if (mini.target_rows.empty()) return;
  const std::size_t chosen = std::stoul(step_id.substr(0, 8), nullptr, 16) % mini.target_rows.size();
  const int sample = mini.target_samples[chosen];
  // The last of the sample's targets is in the deepest node of its path.
  int last = mini.target_rows[chosen];
  for (std::size_t t = 0; t < mini.target_rows.size(); ++t)
    if (mini.target_samples[t] == sample && mini.forest.positions[std::size_t(mini.target_rows[t])] > mini.forest.positions[std::size_t(last)])
      last = mini.target_rows[t];

  std::vector<std::int32_t> tokens, path_rows;
  for (const int n : path_to(mini.forest, node_of(mini.forest, last))) {
    const ForestNode& node = mini.forest.nodes[std::size_t(n)];
    for (int row = node.first_row; row < node.first_row + node.rows && int(tokens.size()) < most_rows; ++row) {
      tokens.push_back(mini.forest.tokens[std::size_t(row)]);
      path_rows.push_back(row);
    }
  }
  std::vector<std::size_t> targets;
  std::vector<std::int32_t> rows, target_tokens;
  for (std::size_t t = 0; t < mini.target_rows.size(); ++t) {
    const std::size_t position = std::size_t(mini.forest.positions[std::size_t(mini.target_rows[t])]);
    if (position >= path_rows.size() || path_rows[position] != mini.target_rows[t]) continue;
    targets.push_back(t);
    rows.push_back(std::int32_t(position));
    target_tokens.push_back(mini.target_tokens[t]);
  }
  if (targets.empty()) return;

  Forest path;
  path.add(-1, tokens);
  std::vector<float> expected(targets.size());
  CpuBackend cpu(pool);
  const std::unique_ptr<Training> passes = cpu.make_training();
  passes->prepare({.pass_rows = piece_rows, .recompute = false}, path.rows());
  passes->begin(policy, path, rows, target_tokens, float(temperature), advanced, {});
  passes->logprobs(expected);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const float found = logprobs[targets[i]];
    if (std::bit_cast<std::uint32_t>(found) == std::bit_cast<std::uint32_t>(expected[i])) continue;
    throw RequestError("DeviceDiffers", "this update is not applied: the log-prob of token " + std::to_string(target_tokens[i]) +
                                            " at position " + std::to_string(rows[i]) + " of sample " + std::to_string(sample) + " is " +
                                            text_of(found) + " on the device and " + text_of(expected[i]) +
                                            " on the CPU. The GPU computes wrong values: take the node out of service");
  }
}

}  // namespace longhaul
