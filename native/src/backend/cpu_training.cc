#include "backend/cpu_training.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "train/gradient_work.h"

namespace longhaul {

void CpuTraining::prepare(const ForestPassSettings& settings, int most_rows) {
  const int rows = std::min(most_rows, settings.pass_rows);
  const bool tighter = (settings.recompute && !recomputes_) || (rows < most_rows && rows < held_rows_);
  if (!pass_ || tighter) {
    pass_ = std::make_unique<ForestPass>(pool_, settings);
    held_rows_ = 0;
  }
  pass_->configure(settings);
  pass_->weights_changed();
  recomputes_ = settings.recompute;
  held_rows_ = std::max(held_rows_, rows);
}

void CpuTraining::begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
                        std::span<const int32_t> target_tokens, float temperature, OnAdvance advanced, OnAdvance passed) {
  policy_ = &policy;
  pass_->begin(policy, forest, target_rows, target_tokens, temperature, std::move(advanced), std::move(passed));
}

void CpuTraining::logprobs(std::span<float> out) { pass_->logprobs(out); }

void CpuTraining::gradient(const Derive& derive, bool trains_entropy) {
  gradients_ = zero_gradients(policy_->trained().size());
  pass_->gradient(derive, trains_entropy, gradients_);
}

double CpuTraining::gradient_norm() { return longhaul::gradient_norm(*policy_, gradients_, pool_); }

void CpuTraining::step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                       const OptimizerSettings& settings) {
  optimizer_step(next, from, reset_moments, gradients_, norm, learning_rate, settings, pool_);
  pass_->weights_changed();
}

void CpuTraining::collect(Policy& next) { next.pack_forward(&pool_); }

std::span<float> CpuTraining::zero_gradients(std::size_t size) {
  float* all = room(memory_, size);
  constexpr std::size_t block = std::size_t{1} << 18;
  pool_.parallel_for((size + block - 1) / block, [&](std::size_t b) {
    std::memset(all + b * block, 0, std::min(block, size - b * block) * sizeof(float));
  });
  return {all, size};
}

}  // namespace longhaul
