#include "train/score.h"

#include <memory>
#include <stdexcept>
#include <string>


namespace longhaul {

namespace {

/// The most rows whose activations exist at once: a longer text takes several passes, with the same bits.
constexpr int score_pass_rows = 2048;

}  // namespace

std::vector<float> score(const Policy& policy, std::span<const int32_t> tokens, double temperature, Backend& backend,
                         const std::function<void()>& advanced) {
  const Architecture& architecture = policy.architecture();
  if (tokens.size() < 2) throw std::invalid_argument("score: at least two tokens are needed");
  if (tokens.size() > size_t(architecture.max_position_embeddings))
    throw std::invalid_argument("score: " + std::to_string(tokens.size()) + " tokens are more than max_position_embeddings, " +
                                std::to_string(architecture.max_position_embeddings));
  if (!(temperature > 0)) throw std::invalid_argument("score: temperature must be above 0");
  for (const int32_t token : tokens)
    if (token < 0 || token >= architecture.vocab_size)
      throw std::invalid_argument("score: token " + std::to_string(token) + " is not in the vocabulary of " +
                                  std::to_string(architecture.vocab_size));
  Forest forest;
  forest.add(-1, tokens);
  std::vector<int32_t> rows;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) rows.push_back(int32_t(i));
  std::vector<float> logprobs(rows.size());
  const std::unique_ptr<Training> passes = backend.make_training();
  passes->prepare({score_pass_rows, false}, forest.rows());
  passes->begin(policy, forest, rows, tokens.subspan(1), float(temperature), advanced, {});
  passes->logprobs(logprobs);
  return logprobs;
}

}  // namespace longhaul
