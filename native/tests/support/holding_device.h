// The emulated device for tests that were written for a CPU, which needs no `hold`: each policy is copied to the device when it is used.
#pragma once

#include <memory>
#include <utility>

#include "cuda/cuda_backend.h"
#include "model/policy.h"

namespace longhaul::test {

class HoldingDevice final : public Backend {
 public:
  const Numerics& numerics() const override { return device_.numerics(); }
  DeviceInfo device() const override { return device_.device(); }
  MemoryUse memory() const override { return device_.memory(); }
  MemoryPlan plan(const MemoryRequest& request) const override { return device_.plan(request); }
  std::size_t block_bytes(const Architecture& architecture) const override { return device_.block_bytes(architecture); }
  void hold(std::shared_ptr<const Policy> policy) override { device_.hold(std::move(policy)); }
  void hold_reference(std::shared_ptr<const Weights> reference) override { device_.hold_reference(std::move(reference)); }
  std::unique_ptr<BlockCache> make_cache(const Architecture& architecture, int blocks) override { return device_.make_cache(architecture, blocks); }
  void extend(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
              std::span<Drawn> drawn) override {
    copy(policy);
    device_.extend(policy, cache, feeds, draws, drawn);
  }
  std::unique_ptr<Training> make_training() override { return std::make_unique<Held>(*this, device_.make_training()); }
  std::vector<LeafDigest> hash_leaves(const Policy& policy, std::span<const std::span<const std::byte>> tensors) override {
    return device_.hash_leaves(policy, tensors);
  }

 private:
  class Held final : public Training {
   public:
    Held(HoldingDevice& device, std::unique_ptr<Training> training) : device_(device), training_(std::move(training)) {}

    void prepare(const ForestPassSettings& settings, int most_rows) override {
      training_->prepare(settings, most_rows);
      stepped_ = nullptr;
    }
    void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> rows, std::span<const int32_t> tokens, float temperature,
               OnAdvance advanced, OnAdvance passed) override {
      if (&policy != stepped_) device_.copy(policy);
      training_->begin(policy, forest, rows, tokens, temperature, std::move(advanced), std::move(passed));
    }
    void logprobs(std::span<float> out) override { training_->logprobs(out); }
    void check_gradient(const Oracle& oracle, std::uint64_t choice) override { training_->check_gradient(oracle, choice); }
    void gradient(const Derive& derive, bool trains_entropy) override { training_->gradient(derive, trains_entropy); }
    double gradient_norm() override { return training_->gradient_norm(); }
    void step(Policy& next, const Policy& from, bool reset_moments, double norm, double rate, const OptimizerSettings& settings) override {
      training_->step(next, from, reset_moments, norm, rate, settings);
      stepped_ = &next;
    }
    void collect(Policy& next) override { training_->collect(next); }
    void give_up() noexcept override { training_->give_up(); }

   private:
    HoldingDevice& device_;
    std::unique_ptr<Training> training_;
    const Policy* stepped_ = nullptr;
  };

  /// Even if a policy at the same place was copied before: its values may be others.
  void copy(const Policy& policy) {
    if (policy.trained().empty()) {
      device_.hold_reference(nullptr);
      device_.hold_reference(policy.shared_weights());
      return;
    }
    device_.hold(other_);
    device_.hold({std::shared_ptr<const Policy>(), &policy});
  }

  static std::shared_ptr<const Policy> smallest() {
    Architecture one;
    one.num_hidden_layers = one.num_attention_heads = one.num_key_value_heads = one.max_position_embeddings = 1;
    one.vocab_size = one.hidden_size = one.intermediate_size = one.head_dim = 16;
    return std::make_shared<Policy>(std::make_shared<Weights>(one));
  }

  cuda::CudaBackend device_;
  std::shared_ptr<const Policy> other_ = smallest();
};

}  // namespace longhaul::test
