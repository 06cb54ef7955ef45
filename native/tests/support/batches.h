// For the tests of the backward pass: objectives over forests, and the same objective over an equivalent forest.
#pragma once

#include "support/check.h"
#include "support/policies.h"
#include "backend/cpu_training.h"

namespace longhaul::test {

/// Σ over targets of weight · log-prob + entropy weight · entropy.
struct Objective {
  Forest forest;
  std::vector<int32_t> rows, tokens;
  std::vector<double> weights, entropy_weights;  // entropy_weights may be empty
  float temperature = 0.9f;

  size_t targets() const { return rows.size(); }

  void add_target(int row, int token, double weight) {
    rows.push_back(row);
    tokens.push_back(token);
    weights.push_back(weight);
  }
  /// Adds entropy weights of both signs, one for every target.
  Objective with_entropy() const {
    Objective objective = *this;
    for (size_t i = 0; i < targets(); ++i) objective.entropy_weights.push_back(i % 3 == 0 ? 0.15 : -0.05);
    return objective;
  }
};

struct Gradient {
  std::vector<float> logprobs, entropies, values;
};

inline std::vector<float> logprobs_of(const Objective& objective, const Policy& policy, ThreadPool& pool,
                                      ForestPassSettings settings = {}) {
  std::vector<float> logprobs(objective.targets());
  CpuTraining pass(CpuDevice(pool, arithmetic()), settings);
  pass.begin(policy, objective.forest, objective.rows, objective.tokens, objective.temperature);
  pass.logprobs(logprobs);
  return logprobs;
}

inline double value_of(const Objective& objective, const Policy& policy, ThreadPool& pool) {
  const bool has_entropy = !objective.entropy_weights.empty();
  std::vector<float> logprobs(objective.targets()), entropies(has_entropy ? objective.targets() : 0);
  CpuTraining pass(CpuDevice(pool, arithmetic()));
  pass.begin(policy, objective.forest, objective.rows, objective.tokens, objective.temperature);
  pass.logprobs(logprobs, entropies);
  double sum = 0;
  for (size_t i = 0; i < objective.targets(); ++i) {
    sum += objective.weights[i] * double(logprobs[i]);
    if (has_entropy) sum += objective.entropy_weights[i] * double(entropies[i]);
  }
  return sum;
}

inline Gradient gradient_with(CpuTraining& pass, const Objective& objective, const Policy& policy) {
  Gradient gradient;
  gradient.values.assign(policy.trained().size(), 0.0f);
  pass.begin(policy, objective.forest, objective.rows, objective.tokens, objective.temperature);
  pass.gradient(
      [&](std::span<const float> logprobs, std::span<const float> entropies, std::span<double> derivatives,
          std::span<double> entropy_derivatives) {
        gradient.logprobs.assign(logprobs.begin(), logprobs.end());
        gradient.entropies.assign(entropies.begin(), entropies.end());
        std::copy(objective.weights.begin(), objective.weights.end(), derivatives.begin());
        std::copy(objective.entropy_weights.begin(), objective.entropy_weights.end(), entropy_derivatives.begin());
      },
      !objective.entropy_weights.empty(), gradient.values.data());
  return gradient;
}

inline Gradient gradient_of(const Objective& objective, const Policy& policy, ThreadPool& pool, ForestPassSettings settings = {}) {
  CpuTraining pass(CpuDevice(pool, arithmetic()), settings);
  return gradient_with(pass, objective, policy);
}

/// A forest of a prefix, two tasks, and three samples for each task. Two of three sample tokens are targets; a sample's first target is on
/// the task's last row.
inline Objective shared_objective(int vocab, int prefix, int task_tokens, int longest_sample) {
  Objective objective;
  const int root = objective.forest.add(-1, random_tokens(prefix, vocab, 1));
  for (int task = 0; task < 2; ++task) {
    const int inner = objective.forest.add(root, random_tokens(task_tokens, vocab, uint32_t(2 + task)));
    for (int s = 0; s < 3; ++s) {
      const std::vector<int32_t> own = random_tokens(s == 0 ? longest_sample : 11, vocab, uint32_t(10 + task * 3 + s));
      const int node = objective.forest.add(inner, own);
      const ForestNode &at = objective.forest.nodes[size_t(node)], &above = objective.forest.nodes[size_t(inner)];
      for (size_t i = 0; i < own.size(); ++i)
        if (i % 3 != 2)
          objective.add_target(i == 0 ? above.first_row + above.rows - 1 : at.first_row + int(i) - 1, own[i], i % 2 ? 0.3 : -0.2);
    }
  }
  return objective;
}

/// Rows of a node's ancestors, then its own, in order of position.
inline std::vector<int32_t> chain_of(const Forest& forest, int node) {
  const std::vector<ForestNode>& nodes = forest.nodes;
  std::vector<int32_t> chain(size_t(nodes[node].position) + nodes[node].rows);
  for (int n = node; n >= 0; n = nodes[n].parent)
    for (int i = 0; i < nodes[n].rows; ++i) chain[nodes[n].position + i] = nodes[n].first_row + i;
  return chain;
}

/// The same targets in the same order without sharing: every root-to-leaf path is its own tree. Targets are listed leaf by leaf.
inline Objective unshared(const Objective& shared) {
  Objective objective;
  objective.temperature = shared.temperature;
  const Forest& forest = shared.forest;
  size_t target = 0;
  for (size_t n = 0; n < forest.nodes.size(); ++n) {
    const bool leaf = std::none_of(forest.nodes.begin(), forest.nodes.end(), [&](const ForestNode& other) { return other.parent == int(n); });
    if (!leaf) continue;
    const std::vector<int32_t> chain = chain_of(forest, int(n));
    std::vector<int32_t> path;
    for (const int32_t row : chain) path.push_back(forest.tokens[size_t(row)]);
    const int first = objective.forest.rows();
    objective.forest.add(-1, path);
    for (int before = -1; target < shared.targets(); ++target) {
      const int place = int(std::find(chain.begin(), chain.end(), shared.rows[target]) - chain.begin());
      // The first target of the next leaf lies on an earlier row of the common path.
      if (place == int(chain.size()) || place <= before) break;
      objective.add_target(first + place, shared.tokens[target], shared.weights[target]);
      before = place;
    }
  }
  check_equal(objective.targets(), shared.targets(), "targets without sharing");
  return objective;
}

/// √(Σ(a − b)² / Σb²)
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    norm += double(b[i]) * double(b[i]);
  }
  return std::sqrt(difference / norm);
}

}  // namespace longhaul::test
