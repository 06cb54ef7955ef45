// An NVIDIA GPU as a backend, or the emulated device in its place: the CPU's numerics, and so the CPU's bits.
#pragma once

#include <memory>
#include <optional>

#include "backend/backend.h"
#include "cuda/host/device_digest.h"
#include "cuda/host/training/device_training.h"
#include "pass/extension.h"

namespace longhaul::cuda {

class CudaBackend final : public Backend, private DevicePolicies {
 public:
  CudaBackend();

  const Numerics& numerics() const override { return cpu_numerics; }
  DeviceInfo device() const override;
  MemoryUse memory() const override;
  MemoryPlan plan(const MemoryRequest& request) const override;
  std::size_t block_bytes(const Architecture& architecture) const override;
  void hold(std::shared_ptr<const Policy> policy) override;
  void hold_reference(std::shared_ptr<const Weights> reference) override;
  std::unique_ptr<BlockCache> make_cache(const Architecture& architecture, int block_capacity) override;
  void extend(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
              std::span<Drawn> drawn) override;
  std::unique_ptr<Training> make_training() override;
  std::vector<LeafDigest> hash_leaves(const Policy& policy, std::span<const std::span<const std::byte>> tensors) override;

 private:
  DeviceModel& model_of(const Policy& policy) override;
  DeviceMoments& moments() override { return moments_; }
  void stepped_to(const Policy& next) override;
  void forget_steps() noexcept override;
  void copy(const Policy& policy);

  OwnedStream stream_;
  Extension<CudaDevice> extension_;
  DeviceDigest digest_;
  std::shared_ptr<const Policy> held_;
  /// The policy whose values the device has: the held one, or the one that an update has stepped to; null if neither.
  const Policy* current_ = nullptr;
  std::optional<DeviceModel> model_;
  DeviceMoments moments_;
  std::shared_ptr<const Weights> reference_weights_;
  std::optional<DeviceModel> reference_;
};

}  // namespace longhaul::cuda
