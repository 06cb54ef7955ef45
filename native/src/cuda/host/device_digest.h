// Digests of a state's leaves, hashed where the device has the state.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "cuda/host/device_model.h"
#include "cuda/host/buffer.h"
#include "cuda/host/training/device_optimizer.h"
#include "cuda/kernels/digest.h"

namespace longhaul::cuda {

class DeviceDigest {
 public:
  /// See Backend::hash_leaves. `model` and `moments` are those of `policy`. Throws std::logic_error if a tensor is no part of its state.
  std::vector<LeafDigest> hash(const Policy& policy, std::span<const std::span<const std::byte>> tensors, DeviceModel& model,
                               const DeviceMoments& moments, Stream stream);

 private:
  Buffer<DigestPart> parts_;
  Buffer<std::uint32_t> digests_;
};

}  // namespace longhaul::cuda
