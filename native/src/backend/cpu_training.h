// Updates on the CPU: passes over a forest, their gradients and AdamW, on all threads of a pool.
#pragma once

#include "backend/cpu_device.h"
#include "pass/forest_pass.h"

namespace longhaul {

extern template class ForestPass<CpuDevice>;

class CpuTraining final : public ForestPass<CpuDevice> {
 public:
  explicit CpuTraining(ThreadPool& pool, ForestPassSettings settings = {}) : ForestPass(CpuDevice(pool), settings) {}

  void prepare(const ForestPassSettings& settings, int most_rows) override;
  void check_gradient(const Oracle&, std::uint64_t) override {}
  double gradient_norm() override;
  void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
            const OptimizerSettings& settings) override;
  void collect(Policy& next) override { next.pack_forward(&device_.pool()); }
  void give_up() noexcept override {}

 private:
  std::span<const float> all_gradients() const { return {gradients_, policy_->trained().size()}; }
};

}  // namespace longhaul
