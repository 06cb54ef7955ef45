#include "cuda/host/device_plan.h"

#include <algorithm>

#include "cuda/host/cuda_device.h"
#include "ops/ops.h"
#include "pass/extension.h"
#include "pass/plan/pass_settings.h"

namespace longhaul::cuda {

namespace {

std::size_t widest_adapter(const MemoryRequest& request) { return request.lora ? 3 * std::size_t(request.lora->rank) : 0; }

/// Of CudaScratch, and the index arrays of all rows: of queries and of outputs, with their tiles.
std::size_t working_floats(const MemoryRequest& request, const RowWidths& w, std::size_t rows) {
  constexpr std::size_t indices = 18 + sizeof(ops::RowNormalizer) / sizeof(float);
  std::size_t floats = rows * (2 * w.hidden + 4 * w.ffn + w.heads + widest_adapter(request) + 1) + std::size_t(request.batch_rows) * indices;
  // The layer's output, computed again for adapters below it.
  if (request.lora && request.recompute) floats += rows * w.hidden;
  if (!request.lora) floats += std::size_t(sum_blocks(piece_rows)) * std::max(w.hidden, w.qkv);
  return floats;
}

/// Floats and indices of the rooms of Extension.
void add_sampling(const MemoryRequest& request, MemoryPlan& plan) {
  if (request.kv_cache_bytes == 0) return;
  const Architecture& architecture = request.architecture;
  const RowWidths w(architecture, nullptr);
  const std::size_t rows = most_feed_rows, indices = 10;
  const std::size_t logits = std::size_t(std::min(most_feed_rows, most_logit_rows<CudaDevice>(architecture.vocab_size)));
  plan.activations += (rows * (3 * w.hidden + 2 * w.qkv + w.query + 3 * w.ffn + widest_adapter(request) + indices) +
                       logits * std::size_t(architecture.vocab_size)) * sizeof(float);
}

}  // namespace

MemoryPlan plan_device_memory(MemoryRequest request) {
  request.threads = 1;
  return plan_memory(request, {[](int rows) { return std::size_t(rows); }, working_floats, add_sampling});
}

}  // namespace longhaul::cuda
