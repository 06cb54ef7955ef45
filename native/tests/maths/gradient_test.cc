// The hand-written backward against finite differences and against itself without prefix sharing.
#include <algorithm>

#include "check.h"
#include "policies.h"
#include "train/forest_pass.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

/// Σ over targets of weight · log-prob: its gradient is what `backward` computes from those weights.
struct Problem {
  Forest forest;
  std::vector<int32_t> rows, tokens;
  std::vector<double> weights;
  float temperature = 0.9f;

  double value(const Policy& policy) const {
    std::vector<float> logprobs(rows.size());
    ForestPass pass;
    pass.forward(policy, forest, rows);
    pass.logprobs(tokens, temperature, logprobs);
    double sum = 0;
    for (size_t i = 0; i < rows.size(); ++i) sum += weights[i] * double(logprobs[i]);
    return sum;
  }

  std::vector<float> gradient(const Policy& policy) const {
    std::vector<float> gradients(policy.layout().total, 0.0f);
    ForestPass pass;
    pass.forward(policy, forest, rows);
    PolicyPanels panels;
    policy.pack_backward(panels);
    pass.backward(panels, tokens, temperature, [&](size_t i, float) { return weights[i]; }, gradients.data());
    return gradients;
  }
};

/// A prefix, two tasks, three samples each; long enough that chains cross panels and slices.
Problem shared_problem(int vocab) {
  Problem problem;
  const int root = problem.forest.add(-1, random_tokens(53, vocab, 1));
  for (int task = 0; task < 2; ++task) {
    const int inner = problem.forest.add(root, random_tokens(9, vocab, 2 + task));
    for (int s = 0; s < 3; ++s) {
      const std::vector<int32_t> own = random_tokens(s == 0 ? 60 : 11, vocab, 10 + task * 3 + s);
      const int node = problem.forest.add(inner, own);
      for (size_t i = 0; i < own.size(); ++i) {
        if (i % 3 == 2) continue;
        const ForestNode &at = problem.forest.nodes[node], &above = problem.forest.nodes[inner];
        problem.rows.push_back(i == 0 ? above.first_row + above.rows - 1 : at.first_row + int(i) - 1);
        problem.tokens.push_back(own[i]);
        problem.weights.push_back(i % 2 ? 0.3 : -0.2);
      }
    }
  }
  return problem;
}

/// The same targets, every root-to-leaf path written out.
Problem unshared(const Problem& shared) {
  Problem problem;
  problem.temperature = shared.temperature;
  size_t target = 0;
  const Forest& forest = shared.forest;
  for (size_t n = 0; n < forest.nodes.size(); ++n) {
    bool leaf = true;
    for (const ForestNode& other : forest.nodes) leaf = leaf && other.parent != int(n);
    if (!leaf) continue;
    const std::vector<int32_t> chain = forest.chain(int(n));
    std::vector<int32_t> path;
    for (const int32_t row : chain) path.push_back(forest.tokens[row]);
    const int first = problem.forest.nodes.empty() ? 0 : problem.forest.rows();
    problem.forest.add(-1, path);
    // Targets were listed leaf by leaf; a leaf's first sits on its parent's last row.
    while (target < shared.rows.size()) {
      const auto place = std::find(chain.begin(), chain.end(), shared.rows[target]);
      if (place == chain.end() || (target > 0 && !problem.rows.empty() && problem.rows.back() >= first &&
                                   first + (place - chain.begin()) < problem.rows.back()))
        break;
      problem.rows.push_back(first + int(place - chain.begin()));
      problem.tokens.push_back(shared.tokens[target]);
      problem.weights.push_back(shared.weights[target]);
      ++target;
    }
  }
  check_equal(problem.rows.size(), shared.rows.size(), "targets without sharing");
  return problem;
}

void check_finite_differences(const Architecture& architecture) {
  Policy policy = tiny_policy(5, architecture);
  const Problem problem = shared_problem(architecture.vocab_size);
  const std::vector<float> gradient = problem.gradient(policy);
  size_t checked = 0;
  for (const NamedTensor<float>& tensor : policy.tensors()) {
    if (tensor.name.starts_with("adam.")) continue;
    const size_t offset = size_t(tensor.values.data() - policy.weights().data());
    // Along the gradient itself the difference is largest against fp32 noise.
    double squares = 0, greatest = 0;
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      squares += double(gradient[offset + i]) * gradient[offset + i];
      greatest = std::max(greatest, std::abs(double(gradient[offset + i])));
    }
    check(squares > 0, tensor.name + " has no gradient");
    const double norm = std::sqrt(squares), step = 4e-3;
    const std::vector<float> before(tensor.values.begin(), tensor.values.end());
    double values[2], moved = 0;
    for (int side = 0; side < 2; ++side) {
      for (size_t i = 0; i < before.size(); ++i)
        tensor.values[i] = float(before[i] + (side ? step : -step) * gradient[offset + i] / norm);
      if (side == 1)
        for (size_t i = 0; i < before.size(); ++i)
          moved += (double(tensor.values[i]) - before[i]) * gradient[offset + i];
      policy.weights_changed();
      values[side] = problem.value(policy);
    }
    std::copy(before.begin(), before.end(), tensor.values.begin());
    const double expected = 2 * moved, actual = values[1] - values[0];
    check(std::abs(actual - expected) <= 0.01 * std::abs(expected),
          tensor.name + ": difference " + std::to_string(actual) + ", gradient says " + std::to_string(expected));
    ++checked;
  }
  policy.weights_changed();
  check(checked >= 24, "all tensors were checked");
}

void every_tensor_matches_finite_differences() { check_finite_differences(tiny_architecture()); }

void untied_embeddings_match_finite_differences() {
  Architecture untied = tiny_architecture();
  untied.tie_word_embeddings = false;
  untied.num_hidden_layers = 3;
  untied.head_dim = 64;
  check_finite_differences(untied);
}

void one_layer_matches_finite_differences_of_single_weights() {
  Architecture architecture = tiny_architecture();
  architecture.num_hidden_layers = 1;
  Policy policy = tiny_policy(6, architecture);
  const Problem problem = shared_problem(architecture.vocab_size);
  const std::vector<float> gradient = problem.gradient(policy);
  double scale = 0;
  for (const float g : gradient) scale = std::max(scale, std::abs(double(g)));
  for (uint32_t i = 0; i < 60; ++i) {
    const size_t w = philox4x32_10({i, 0, 0, 0}, {8, 8})[0] % gradient.size();
    const float before = policy.weights()[w];
    double values[2];
    for (int side = 0; side < 2; ++side) {
      policy.weights()[w] = before + (side ? 2e-3f : -2e-3f);
      policy.weights_changed();
      values[side] = problem.value(policy);
    }
    policy.weights()[w] = before;
    check_near((values[1] - values[0]) / 4e-3 / scale, gradient[w] / scale, 5e-3, "weight " + std::to_string(w));
  }
}

void sharing_changes_no_logprob_and_hardly_a_gradient() {
  const Policy policy = tiny_policy();
  const Problem shared = shared_problem(71), alone = unshared(shared);
  std::vector<float> with(shared.rows.size()), without(shared.rows.size());
  ForestPass pass;
  pass.forward(policy, shared.forest, shared.rows);
  pass.logprobs(shared.tokens, 1, with);
  pass.forward(policy, alone.forest, alone.rows);
  pass.logprobs(alone.tokens, 1, without);
  check_same_bits(with, without, "log-probs");
  const std::vector<float> a = shared.gradient(policy), b = alone.gradient(policy);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - b[i], 2);
    norm += double(b[i]) * b[i];
  }
  check(std::sqrt(difference / norm) < 1e-5, "gradients differ by " + std::to_string(std::sqrt(difference / norm)));
}

void rows_behind_no_target_get_no_gradient() {
  const Policy policy = tiny_policy();
  Problem problem;
  std::vector<int32_t> tokens = random_tokens(20, 70, 3);
  tokens[15] = 70;  // stands nowhere else, and after the only target
  problem.forest.add(-1, tokens);
  problem.rows = {9};
  problem.tokens = {tokens[10]};
  problem.weights = {1};
  // The tied head reaches every token's row; an untied model separates the two.
  Architecture untied = tiny_architecture();
  untied.tie_word_embeddings = false;
  const Policy separate = tiny_policy(7, untied);
  const std::vector<float> gradient = problem.gradient(separate);
  for (int i = 0; i < untied.hidden_size; ++i) {
    check_equal(gradient[size_t(70) * untied.hidden_size + i], 0.0f, "gradient of a later token's embedding");
    check(gradient[size_t(tokens[3]) * untied.hidden_size + i] != 0.0f, "an earlier token's embedding has a gradient");
  }
}

}  // namespace

int main() {
  return run({{"every tensor matches finite differences", every_tensor_matches_finite_differences},
              {"untied embeddings match finite differences", untied_embeddings_match_finite_differences},
              {"single weights of one layer match finite differences", one_layer_matches_finite_differences_of_single_weights},
              {"sharing changes no log-prob and hardly a gradient", sharing_changes_no_logprob_and_hardly_a_gradient},
              {"rows behind no target get no gradient", rows_behind_no_target_get_no_gradient}});
}
