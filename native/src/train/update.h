// One step's update: every mini-batch's gradient, clipped, through AdamW. Computed beside the policy it starts from, so that an error on
// the way changes nothing; a caller that takes the result over applies all of it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "train/batch.h"
#include "train/forest/forest_pass.h"
#include "train/loss.h"
#include "train/optimizer.h"

namespace longhaul {

struct UpdateSettings {
  /// One for each mini-batch.
  std::vector<double> learning_rates;
  OptimizerSettings optimizer;
  /// Zero the moments and the optimizer steps first.
  bool reset_moments = false;
  double temperature = 1;
  LossSettings loss;
  ForestPassSettings passes;
  /// Reference weights of the KL term; needed if loss.wants_reference().
  std::shared_ptr<const Weights> reference;
  /// Checked between layers; where it becomes true, the update is given up.
  const std::atomic<bool>* cancelled = nullptr;
  /// Called as passes of the update are done (forward, backward and each mini-batch's step count); `total` is known from the start.
  std::function<void(int done, int total)> progress;
  /// Called as the work gets on, layer by layer.
  std::function<void()> advanced;
};

struct UpdateReport {
  bool applied = false;
  /// The policy after the update; null if it was not applied.
  std::unique_ptr<Policy> next;
  /// If not applied: `non_finite` or `cancelled`.
  std::string reason;
  /// loss, grad_norm, clip_ratio, mean_ratio: means over the mini-batches; max_logprob_difference: max |lp − the batch's log-prob| of
  /// the first mini-batch (0 for cross-entropy); targets, rows: sums. entropy (of what the policy
  /// predicts, in nats; absent if not finite), and kl, tis_weight if in use: means over targets.
  std::vector<std::pair<std::string, double>> metrics;
};

/// Keeps working memory (gradients, activations, the policy of the update before last) between updates: fresh pages cost as
/// much as the arithmetic of a small model.
class Trainer {
 public:
  explicit Trainer(ThreadPool& pool);
  ~Trainer();

  /// The batch is valid. Throws std::invalid_argument on bad settings.
  UpdateReport update(const Policy& policy, const Batch& batch, const UpdateSettings& settings);
  /// Takes a policy that is no longer needed, for its memory.
  void recycle(std::unique_ptr<Policy> spent);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One update with a trainer of its own.
UpdateReport compute_update(const Policy& policy, const Batch& batch, const UpdateSettings& settings, ThreadPool& pool);

}  // namespace longhaul
