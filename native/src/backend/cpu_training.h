// Updates on the CPU: the forest pass, its gradients and AdamW, on all threads of a pool.
#pragma once

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "train/forest/forest_pass.h"

namespace longhaul {

class CpuTraining final : public Training {
 public:
  explicit CpuTraining(ThreadPool& pool) : pool_(pool) {}

  void prepare(const ForestPassSettings& settings, int most_rows) override;
  void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows, std::span<const int32_t> target_tokens,
             float temperature, OnAdvance advanced, OnAdvance passed) override;
  void logprobs(std::span<float> out) override;
  void check_gradient(std::uint64_t) override {}
  void gradient(const Derive& derive, bool trains_entropy) override;
  double gradient_norm() override;
  void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
            const OptimizerSettings& settings) override;
  void collect(Policy& next) override;
  void give_up() noexcept override {}

 private:
  std::span<float> zero_gradients(std::size_t size);

  ThreadPool& pool_;
  std::unique_ptr<ForestPass> pass_;
  bool recomputes_ = false;
  /// Rows of the largest pass that `pass_` has had memory for.
  int held_rows_ = 0;
  const Policy* policy_ = nullptr;
  AlignedBuffer memory_{BufferMemory::mapped};
  std::span<float> gradients_;
};

}  // namespace longhaul
