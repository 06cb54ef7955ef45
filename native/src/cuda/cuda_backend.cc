#include "cuda/cuda_backend.h"

#include <stdexcept>

#include "cuda/device/properties.h"
#include "cuda/host/device_plan.h"
#include "cuda/kernels/attention/attention.h"

namespace longhaul::cuda {

CudaBackend::CudaBackend() : extension_(CudaDevice(*this, stream_)) { page_locks = {lock_host_pages, unlock_host_pages}; }

DeviceInfo CudaBackend::device() const {
  const DeviceProperties properties = device_properties();
  return {properties.kind, properties.name, properties.memory_bytes};
}

MemoryUse CudaBackend::memory() const {
  const DeviceMemory memory = device_memory();
  return {memory.allocated, memory.free};
}

MemoryPlan CudaBackend::plan(const MemoryRequest& request) const {
  const Architecture& arch = request.architecture;
  const std::string refusal = attention_refusal(arch.num_attention_heads, arch.num_key_value_heads, arch.head_dim);
  if (!refusal.empty()) throw std::invalid_argument(refusal);
  const size_t shared = attention_shared_bytes(arch.head_dim), most = most_shared_bytes();
  if (shared > most)
    throw std::invalid_argument("head_dim is " + std::to_string(arch.head_dim) + "; attention then takes " + std::to_string(shared) +
                                " bytes of shared memory, and this GPU has " + std::to_string(most));
  return plan_device_memory(request);
}

std::size_t CudaBackend::block_bytes(const Architecture& architecture) const { return DeviceCache::block_bytes(architecture); }

void CudaBackend::hold(std::shared_ptr<const Policy> policy) {
  if (policy.get() != current_) copy(*policy);
  held_ = std::move(policy);
}

void CudaBackend::copy(const Policy& policy) {
  // The old arrays are freed first, because a GPU may not have room for both.
  std::shared_ptr<DeviceWeights> base;
  if (model_ && policy.adapters() && model_->weights()->source.lock() == policy.shared_weights()) base = model_->weights();
  current_ = nullptr;
  model_.reset();
  moments_ = DeviceMoments();
  model_.emplace(policy, base, stream_);
  moments_ = DeviceMoments(policy.moments(), stream_);
  current_ = &policy;
}

void CudaBackend::hold_reference(std::shared_ptr<const Weights> reference) {
  if (reference == reference_weights_) return;
  reference_weights_ = nullptr;
  reference_.reset();
  if (!reference) return;
  // Weights under adapters never change, so the reference shares them.
  const bool shares = model_ && model_->frozen() && model_->weights()->source.lock() == reference;
  reference_.emplace(Policy::frozen(reference), shares ? model_->weights() : nullptr, stream_);
  reference_weights_ = std::move(reference);
}

std::unique_ptr<BlockCache> CudaBackend::make_cache(const Architecture& architecture, int block_capacity) {
  return std::make_unique<DeviceCache>(architecture, block_capacity, stream_);
}

void CudaBackend::extend(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
                         std::span<Drawn> drawn) {
  extension_.run(policy, cache, feeds, draws, drawn);
}

std::unique_ptr<Training> CudaBackend::make_training() {
  return std::make_unique<DeviceTraining>(CudaDevice(*this, stream_));
}

std::vector<LeafDigest> CudaBackend::hash_leaves(const Policy& policy, std::span<const std::span<const std::byte>> tensors) {
  return digest_.hash(policy, tensors, model_of(policy), moments_, stream_);
}

DeviceModel& CudaBackend::model_of(const Policy& policy) {
  if (&policy == held_.get() && current_ == nullptr) copy(policy);
  if (model_ && &policy == current_) return *model_;
  if (reference_ && policy.shared_weights() == reference_weights_ && !policy.adapters()) return *reference_;
  throw std::logic_error("the device does not hold this policy");
}

void CudaBackend::stepped_to(const Policy& next) {
  current_ = &next;
  if (!model_->frozen()) model_->weights()->source.reset();
}

void CudaBackend::forget_steps() noexcept {
  if (current_ != held_.get()) current_ = nullptr;
}

}  // namespace longhaul::cuda
