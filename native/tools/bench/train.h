// Training: whole updates (forward, backward, clipping, AdamW, the new state's digest). Each update replaces the policy, as in the engine.
#pragma once

#include <memory>
#include <optional>

#include "options.h"
#include "report.h"
#include "sizes.h"
#include "device_choice.h"
#include "state/digest/digest.h"
#include "train/update.h"

namespace longhaul::bench {

/// The sequences of a batch as a forest of one mini-batch; the targets are the tokens of its nodes.
struct TrainingBatch {
  std::vector<int32_t> nodes, tokens, target_rows, target_tokens, target_samples;
  std::vector<float> advantages, old_logprobs;

  int add(int parent, const std::vector<int32_t>& node) {
    nodes.insert(nodes.end(), {int32_t(parent), int32_t(node.size()), 0});
    tokens.insert(tokens.end(), node.begin(), node.end());
    return int(nodes.size() / 3) - 1;
  }
  /// Adds a target: row `row` predicts `token`.
  void target(int row, int32_t token, int sample) {
    target_rows.push_back(row);
    target_tokens.push_back(token);
    target_samples.push_back(sample);
    advantages.push_back(sample % 2 == 0 ? 1.0f : -1.0f);
    old_logprobs.push_back(-7.0f);
  }
  Batch view() const { return {nodes, tokens, target_rows, target_tokens, target_samples, advantages, old_logprobs, {}}; }
};

/// Updates one policy repeatedly.
class Updater {
 public:
  /// Copies the policy into memory whose pages the backend's device has locked, as it does in an engine.
  Updater(const Policy& policy, ThreadPool& pool)
      : pool_(pool), backend_(make_chosen_backend(pool)), trainer_(*backend_), policy_(std::make_unique<Policy>(policy)) {
    settings_.learning_rates = {1e-5};
    if (device().kind != "cpu") before_ = backend_->memory().taken;
    hold();
  }

  double processor = 0;
  std::string state;  // digest

  DeviceInfo device() const { return backend_->device(); }
  /// Of the device's memory, without the driver's own; on a CPU, of the process.
  std::size_t bytes_taken() const { return backend_->memory().taken - before_; }
  MemoryPlan plan(const MemoryRequest& request) const { return backend_->plan(request); }
  const ForestPassSettings& passes() const { return settings_.passes; }

  double digest_seconds = 0;

  /// Seconds in which what an update has changed is brought to the host, as at its end.
  double copy_seconds() {
    const std::unique_ptr<Training> training = backend_->make_training();
    const double start = now();
    training->collect(*policy_);
    return now() - start;
  }

  /// Returns the seconds of one update, and stores its processor time in `processor`.
  double update(const TrainingBatch& batch) {
    const Batch view = batch.view();
    const double start = now(), start_processor = processor_time();
    UpdateReport report = trainer_.update(*policy_, view, settings_);
    if (!report.applied) throw std::runtime_error("the update was not applied: " + report.reason);
    trainer_.recycle(std::move(policy_));
    policy_ = std::move(report.next);
    hold();
    // In a run, the reply to every update contains the digest.
    const double start_digest = now();
    state = state_digest(*policy_, *backend_, pool_).digest;
    digest_seconds = now() - start_digest;
    processor = processor_time() - start_processor;
    return now() - start;
  }

 private:
  /// The backend does not own the policy, since its memory is used again.
  void hold() { backend_->hold({std::shared_ptr<const Policy>(), policy_.get()}); }

  ThreadPool& pool_;
  std::unique_ptr<Backend> backend_;
  Trainer trainer_;
  std::unique_ptr<Policy> policy_;
  UpdateSettings settings_;
  std::size_t before_ = 0;
};

/// [--size 0.85M|6M|60M|0.6B] [--sequences 32] [--length 128] [--seconds 10 | --updates N] [--threads 2] [--moments fp32|int8]
inline void bench_train(Options options) {
  const std::string size = options.text("size", "6M"), moments = options.text("moments", "fp32");
  const int sequences = options.whole("sequences", 32), length = options.whole("length", 128, 2), threads = options.whole("threads", 2);
  const int updates = options.whole("updates", 0, 0);
  const double seconds = options.number("seconds", 10, 0);
  options.done();
  if (moments != "fp32" && moments != "int8") throw std::invalid_argument("--moments is \"" + moments + "\"; it must be fp32 or int8");

  const Architecture architecture = architecture_of(size);
  ThreadPool pool(threads);
  std::optional<Policy> policy = policy_of(architecture, pool, moments == "int8" ? MomentFormat::int8 : MomentFormat::fp32);
  const size_t parameters = policy->layout().total;
  TrainingBatch batch;
  for (int s = 0; s < sequences; ++s) {
    const std::vector<int32_t> tokens = random_tokens(length, architecture.vocab_size, uint32_t(s));
    const int first = int(batch.tokens.size());
    batch.add(-1, tokens);
    for (int i = 1; i < length; ++i) batch.target(first + i - 1, tokens[size_t(i)], s);
  }

  const MomentFormat format = policy->moments().format;
  Updater updater(*policy, pool);
  policy.reset();
  for (int i = 0; i < 2; ++i) updater.update(batch);  // the second update reuses the memory of the first
  std::vector<double> times, processor_times;
  const auto enough = [&, end = now() + seconds] {
    return updates > 0 ? int(times.size()) + 2 >= updates : times.size() >= 3 && now() >= end;
  };
  while (times.empty() || !enough()) {
    times.push_back(updater.update(batch));
    processor_times.push_back(updater.processor);
  }
  const double tokens = double(sequences) * length;
  MemoryRequest request;
  request.architecture = architecture;
  request.moments = format;
  request.threads = threads;
  request.pass_rows = updater.passes().pass_rows;
  request.recompute = updater.passes().recompute;
  request.longest_chain = length;
  request.batch_rows = sequences * length;
  print({{"bench", "train"},
         {"engine", "longhaul"},
         {"device", updater.device().kind},
         {"instruction_set", ops::name(ops::instruction_set())},
         {"size", size},
         {"parameters", std::uint64_t(parameters)},
         {"moments", moments},
         {"threads", threads},
         {"sequences", sequences},
         {"length", length},
         {"updates", int(times.size())},
         {"update_seconds", median(times)},
         {"digest_seconds", updater.digest_seconds},
         {"copy_seconds", updater.copy_seconds()},
         {"bytes_of_plan", double(updater.bytes_taken()) / double(updater.plan(request).total)},
         {"state", updater.state},
         {"tokens_per_second", tokens / median(times)},
         {"best_tokens_per_second", tokens / *std::min_element(times.begin(), times.end())},
         {"tokens_per_processor_second", tokens / *std::min_element(processor_times.begin(), processor_times.end())}});
}

}  // namespace longhaul::bench
