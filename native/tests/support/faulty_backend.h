// A backend that errs as a broken GPU does: it gives another backend's results with one value changed.
// defines: FaultyBackend, Err
#pragma once

#include <bit>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "backend/device_error.h"

namespace longhaul::test {

/// What goes wrong; `hold`: what is copied to the device; `copy`: what is sent to the host is not what was hashed; `lost`: the driver reports
/// an error.
enum class Err { nothing, draw, logprob, gradient, step, hold, copy, lost };

inline float flipped(float value) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1u); }

class FaultyTraining final : public Training {
 public:
  FaultyTraining(std::unique_ptr<Training> right, Err err) : right_(std::move(right)), err_(err) {}

  void prepare(const ForestPassSettings& settings, int most_rows) override { right_->prepare(settings, most_rows); }
  void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> rows, std::span<const int32_t> tokens, float temperature,
             OnAdvance advanced, OnAdvance passed) override {
    right_->begin(policy, forest, rows, tokens, temperature, std::move(advanced), std::move(passed));
  }
  void logprobs(std::span<float> out) override {
    right_->logprobs(out);
    if (err_ == Err::logprob) out.back() = flipped(out.back());
  }
  void check_gradient(const Oracle& oracle, std::uint64_t choice) override {
    right_->check_gradient(oracle, choice);
    checked_ = true;
  }
  void gradient(const Derive& derive, bool trains_entropy) override {
    if (err_ == Err::lost) throw DeviceError("launch: an illegal memory access was encountered");
    const auto erring = [&](std::span<const float> logprobs, std::span<const float> entropies, std::span<double> d, std::span<double> e) {
      std::vector<float> seen(logprobs.begin(), logprobs.end());
      if (err_ == Err::logprob)
        for (float& one : seen) one = flipped(one);
      derive(seen, entropies, d, e);
    };
    right_->gradient(erring, trains_entropy);
    if (err_ == Err::gradient && checked_) throw WrongValue("element [0, 0] of the gradient");
  }
  double gradient_norm() override { return right_->gradient_norm(); }
  void step(Policy& next, const Policy& from, bool reset, double norm, double rate, const OptimizerSettings& settings) override {
    right_->step(next, from, reset, norm, err_ == Err::step ? rate * 2 : rate, settings);
  }
  void collect(Policy& next) override { right_->collect(next); }
  void give_up() noexcept override { right_->give_up(); }

 private:
  std::unique_ptr<Training> right_;
  Err err_;
  bool checked_ = false;
};

class FaultyBackend final : public Backend {
 public:
  FaultyBackend(std::unique_ptr<Backend> right, Err err) : right_(std::move(right)), err_(err) {}

  const Numerics& numerics() const override { return right_->numerics(); }
  DeviceInfo device() const override { return {"cuda", "faulty device", 0}; }
  MemoryUse memory() const override { return right_->memory(); }
  MemoryPlan plan(const MemoryRequest& request) const override { return right_->plan(request); }
  std::size_t block_bytes(const Architecture& architecture) const override { return right_->block_bytes(architecture); }
  void hold(std::shared_ptr<const Policy> policy) override {
    held_ = policy.get();
    right_->hold(std::move(policy));
  }
  void hold_reference(std::shared_ptr<const Weights> reference) override { right_->hold_reference(std::move(reference)); }
  std::unique_ptr<BlockCache> make_cache(const Architecture& architecture, int blocks) override { return right_->make_cache(architecture, blocks); }
  void extend(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
              std::span<Drawn> drawn) override {
    right_->extend(policy, cache, feeds, draws, drawn);
    if (err_ == Err::draw && !drawn.empty()) drawn[0].logprob = flipped(drawn[0].logprob);
  }
  std::unique_ptr<Training> make_training() override { return std::make_unique<FaultyTraining>(right_->make_training(), err_); }
  std::vector<LeafDigest> hash_leaves(const Policy& policy, std::span<const std::span<const std::byte>> tensors) override {
    if (err_ != (&policy == held_ ? Err::hold : Err::copy)) return right_->hash_leaves(policy, tensors);
    std::size_t bytes = 0;
    for (const auto& tensor : tensors) bytes += tensor.size();
    return std::vector<LeafDigest>((bytes >> 20) + 1);
  }

 private:
  std::unique_ptr<Backend> right_;
  Err err_;
  const Policy* held_ = nullptr;
};

}  // namespace longhaul::test
