#include "backend/cpu_backend.h"

#include <algorithm>

#include "backend/cpu_training.h"
#include "backend/inference/decode.h"
#include "ops/ops.h"

namespace longhaul {

namespace {

void add_gradient(const float* dy, const float* x, int rows, int outputs, int inputs, float* sums) {
  ops::Panels panels;
  ops::pack(x, std::size_t(inputs), rows, inputs, panels);
  ops::table().matmul_transposed(dy, std::size_t(outputs), panels, sums, std::size_t(inputs), outputs);
}

}  // namespace

// Raise the version by hand when the committed golden digest changes (tests/model/golden_test.cc).
const Numerics cpu_numerics{"cpu", 2, {"CPU", make_cpu_backend, add_gradient}};

MemoryUse CpuBackend::memory() const { return {resident_bytes(), available_memory()}; }

MemoryPlan CpuBackend::plan(const MemoryRequest& request) const { return plan_memory(request); }

std::size_t CpuBackend::block_bytes(const Architecture& architecture) const { return KvCache::block_bytes(architecture); }

void CpuBackend::hold(std::shared_ptr<const Policy> policy) { policy->pack_forward(&pool_); }

void CpuBackend::hold_reference(std::shared_ptr<const Weights> reference) {
  if (reference) reference->pack_forward(&pool_);
}

std::unique_ptr<BlockCache> CpuBackend::make_cache(const Architecture& architecture, int block_capacity) {
  return std::make_unique<KvCache>(architecture, block_capacity);
}

// Runs the feeds in order, in calls with a bounded number of logits. A feed reads only what it or an earlier feed writes.
void CpuBackend::extend(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
                        std::span<Drawn> drawn) {
  const auto vocab = static_cast<std::size_t>(policy.architecture().vocab_size);
  const std::size_t most_rows = std::max<std::size_t>(logits_bytes / (vocab * sizeof(float)), 16);
  auto& blocks = dynamic_cast<KvCache&>(cache);
  validate(feeds, policy.architecture(), cache.block_capacity());
  std::size_t first_draw = 0;
  for (std::size_t first = 0; first < feeds.size();) {
    std::size_t end = first, rows = 0;
    while (end < feeds.size() && rows + feeds[end].want_logits <= most_rows) rows += feeds[end++].want_logits;
    if (logits_.size() < rows * vocab) logits_.resize(rows * vocab);
    longhaul::extend(policy, blocks, feeds.subspan(first, end - first), logits_.data(), pool_);
    constexpr std::size_t rows_per_task = 8;
    pool_.parallel_for((rows + rows_per_task - 1) / rows_per_task, [&](std::size_t task) {
      for (std::size_t row = task * rows_per_task; row < std::min(rows, (task + 1) * rows_per_task); ++row)
        drawn[first_draw + row] = draw(logits_.data() + row * vocab, int(vocab), draws[first_draw + row]);
    });
    first_draw += rows;
    first = end;
  }
}

std::unique_ptr<Training> CpuBackend::make_training() { return std::make_unique<CpuTraining>(pool_); }

}  // namespace longhaul
