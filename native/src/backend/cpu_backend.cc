#include "backend/cpu_backend.h"

#include "backend/cpu_memory.h"
#include "backend/cpu_training.h"
#include "ops/ops.h"

namespace longhaul {

namespace {

template <ops::Arithmetic arithmetic>
void add_gradient(const float* dy, const float* x, int rows, int outputs, int inputs, float* sums) {
  ops::Panels panels;
  ops::pack(x, std::size_t(inputs), rows, inputs, panels);
  ops::table(arithmetic).matmul_transposed(dy, std::size_t(outputs), panels, sums, std::size_t(inputs), outputs);
}

}  // namespace

// Raise the version by hand when the committed golden digest changes (tests/model/golden_test.cc).
const Numerics cpu_numerics{"cpu", 2, {"CPU", make_cpu_backend, add_gradient<ops::Arithmetic::fp32>}};
const Numerics bf16_numerics{"bf16-sm90", 1, {"CPU", make_bf16_backend, add_gradient<ops::Arithmetic::bf16>}};

MemoryUse CpuBackend::memory() const { return {resident_bytes(), available_memory()}; }

MemoryPlan CpuBackend::plan(const MemoryRequest& request) const { return plan_memory(request, arithmetic_); }

std::size_t CpuBackend::block_bytes(const Architecture& architecture) const { return KvCache::block_bytes(architecture); }

void CpuBackend::hold(std::shared_ptr<const Policy> policy) { policy->pack_forward(&pool_, arithmetic_); }

void CpuBackend::hold_reference(std::shared_ptr<const Weights> reference) {
  if (reference) reference->pack_forward(&pool_, arithmetic_);
}

std::unique_ptr<BlockCache> CpuBackend::make_cache(const Architecture& architecture, int block_capacity) {
  return std::make_unique<KvCache>(architecture, block_capacity);
}

void CpuBackend::extend(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
                        std::span<Drawn> drawn) {
  extension_.run(policy, cache, feeds, draws, drawn);
}

std::unique_ptr<Training> CpuBackend::make_training() { return std::make_unique<CpuTraining>(CpuDevice(pool_, arithmetic_)); }

}  // namespace longhaul
