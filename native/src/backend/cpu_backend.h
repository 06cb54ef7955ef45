// The CPU as a backend: all threads of a pool, and the host's own arrays.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/inference/cpu_extension.h"
#include "base/thread_pool.h"

namespace longhaul {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(ThreadPool& pool, ops::Arithmetic arithmetic = ops::Arithmetic::fp32)
      : pool_(pool), arithmetic_(arithmetic), extension_(pool, arithmetic) {}

  const Numerics& numerics() const override { return arithmetic_ == ops::Arithmetic::bf16 ? bf16_numerics : cpu_numerics; }
  DeviceInfo device() const override { return {"cpu", "", 0}; }
  MemoryUse memory() const override;
  MemoryPlan plan(const MemoryRequest& request) const override;
  std::size_t block_bytes(const Architecture& architecture) const override;
  void hold(std::shared_ptr<const Policy> policy) override;
  void hold_reference(std::shared_ptr<const Weights> reference) override;
  std::unique_ptr<BlockCache> make_cache(const Architecture& architecture, int block_capacity) override;
  void extend(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
              std::span<Drawn> drawn) override;
  std::unique_ptr<Training> make_training() override;
  std::vector<LeafDigest> hash_leaves(const Policy&, std::span<const std::span<const std::byte>>) override { return {}; }

 private:
  ThreadPool& pool_;
  const ops::Arithmetic arithmetic_;
  CpuExtension extension_;
};

inline std::unique_ptr<Backend> make_cpu_backend(ThreadPool& pool) { return std::make_unique<CpuBackend>(pool); }
inline std::unique_ptr<Backend> make_bf16_backend(ThreadPool& pool) { return std::make_unique<CpuBackend>(pool, ops::Arithmetic::bf16); }

}  // namespace longhaul
