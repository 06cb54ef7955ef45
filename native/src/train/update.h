// One step's update: every mini-batch's gradient, clipped, through AdamW. Computed beside the policy it starts from, so that
// whatever goes wrong on the way changes nothing; who takes the result over applies all of it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "train/batch.h"
#include "train/loss.h"

namespace longhaul {

struct UpdateSettings {
  /// One for each mini-batch.
  std::vector<double> learning_rates;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double adam_eps = 1e-8;
  double weight_decay = 0;
  double max_grad_norm = 1;
  /// Zero the moments and the optimizer steps first.
  bool reset_moments = false;
  double temperature = 1;
  LossSettings loss;
  /// Checked between shards; where it becomes true, the update is given up.
  const std::atomic<bool>* cancelled = nullptr;
  /// Called after every shard of every mini-batch, on any thread, one call at a time; `total` counts them all.
  std::function<void(int done, int total)> progress;
  /// Called as a shard's work gets on, layer by layer, on any thread and from several at once.
  std::function<void()> advanced;
};

struct UpdateReport {
  bool applied = false;
  /// The policy behind the update; null where not applied.
  std::unique_ptr<Policy> next;
  /// Where not applied: `non_finite` or `cancelled`.
  std::string reason;
  /// loss, grad_norm, clip_ratio, mean_ratio: means over the mini-batches; max_logprob_difference: max |lp − old| of the
  /// first mini-batch (0 for cross-entropy); targets, rows: sums.
  std::vector<std::pair<std::string, double>> metrics;
};

/// Throws std::invalid_argument on bad settings and BatchError on a bad batch.
UpdateReport compute_update(const Policy& policy, const Batch& batch, const UpdateSettings& settings, ThreadPool& pool);

}  // namespace longhaul
