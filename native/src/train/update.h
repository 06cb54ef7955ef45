// One step's update: the gradient of every mini-batch, clipped, through AdamW. It is computed beside the policy that it starts from, so an
// error changes nothing. A caller that takes the result applies the update as a whole.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/optimizer.h"
#include "model/policy.h"
#include "train/loss.h"
#include "train/mini_batch.h"

namespace longhaul {

struct UpdateSettings {
  /// One for each mini-batch.
  std::vector<double> learning_rates;
  OptimizerSettings optimizer;
  /// Zero the moments and the optimizer's step count first.
  bool reset_moments = false;
  double temperature = 1;
  LossSettings loss;
  ForestPassSettings passes;
  /// Reference weights of the KL term; needed if loss.wants_reference().
  std::shared_ptr<const Weights> reference;
  /// Checked between layers; when it becomes true, the update ends.
  const std::atomic<bool>* cancelled = nullptr;
  /// Called as passes of the update are done (forward, backward and each mini-batch's optimizer step count); `total` never changes.
  std::function<void(int done, int total)> progress;
  /// Called after each layer and each piece of the head.
  std::function<void()> advanced;
  /// If given, called with the log-probs of the first mini-batch, before anything is stepped. May throw to end the update.
  std::function<void(const MiniBatch& mini, std::span<const float> logprobs)> first_logprobs;
  /// If given, a part of the first mini-batch's gradient is checked (Training::check_gradient).
  std::optional<std::uint64_t> checked_gradient;
};

struct UpdateReport {
  bool applied = false;
  /// The policy after the update; null if it was not applied.
  std::unique_ptr<Policy> next;
  /// If not applied: `non_finite` or `cancelled`.
  std::string reason;
  /// loss, grad_norm, clip_ratio, mean_ratio: means over the mini-batches. max_logprob_difference: max |lp − the batch's log-prob| of the
  /// first mini-batch (0 for cross-entropy). targets, rows: sums. Means over targets: entropy (of the policy's predictions, in nats; absent
  /// if not finite) and, if in use, kl and tis_weight.
  std::vector<std::pair<std::string, double>> metrics;
};

/// Keeps working memory (the backend's, and the policy of the update before last) between updates: fresh pages cost as much as the arithmetic
/// of a small model.
class Trainer {
 public:
  explicit Trainer(Backend& backend);
  ~Trainer();

  /// The batch must be valid. Throws std::invalid_argument on bad settings.
  UpdateReport update(const Policy& policy, const Batch& batch, const UpdateSettings& settings);
  /// Takes over a policy that is no longer needed, to reuse its memory.
  void recycle(std::unique_ptr<Policy> spent);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Runs one update with a temporary trainer.
UpdateReport compute_update(const Policy& policy, const Batch& batch, const UpdateSettings& settings, Backend& backend);

}  // namespace longhaul
