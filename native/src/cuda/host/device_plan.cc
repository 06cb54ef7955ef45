#include "cuda/host/device_plan.h"

#include <algorithm>

#include "cuda/host/cuda_device.h"
#include "ops/ops.h"
#include "pass/extension.h"
#include "pass/rows.h"
#include "pass/plan/pass_settings.h"

namespace longhaul::cuda {

namespace {

/// Of a row's index arrays (DeviceForestPass): of all queries and of outputs, with their tiles.
constexpr std::size_t index_bytes = 18 * sizeof(int32_t);

/// Floats of the rooms of DeviceTraining for a pass of `rows`, in the order in which they are declared.
std::size_t room_floats(const MemoryRequest& request, const RowWidths& w, std::size_t rows) {
  const Architecture& architecture = request.architecture;
  const std::size_t layers = std::size_t(architecture.num_hidden_layers), kept = request.recompute ? 1 : layers;
  const std::size_t widest_adapter = request.lora ? 3 * std::size_t(request.lora->rank) : 0;
  const std::size_t forward = layers * w.hidden + kept * w.layer() + w.hidden + w.ffn + w.final() + 1;
  const std::size_t backward = 3 * w.hidden + w.query + 3 * w.ffn + w.hidden + w.qkv + w.heads + widest_adapter;
  std::size_t floats = rows * (forward + backward);
  // The layer's output, computed again for adapters below it.
  if (request.lora && request.recompute) floats += rows * w.hidden;
  if (!request.lora) {
    floats += std::size_t(std::min(request.batch_rows, architecture.vocab_size)) * w.hidden;  // embedding's gradient
    floats += std::size_t(piece_rows / 64) * std::max(w.hidden, w.qkv);                       // blocks of sums
  }
  return floats;
}

/// Floats and indices of the rooms of Extension.
std::size_t sampling_floats(const MemoryRequest& request, const RowWidths& w) {
  const std::size_t rows = most_feed_rows, widest_adapter = request.lora ? 3 * std::size_t(request.lora->rank) : 0, indices = 10;
  const std::size_t logits = std::size_t(std::min(most_feed_rows, most_logit_rows<CudaDevice>(request.architecture.vocab_size)));
  return rows * (3 * w.hidden + 2 * w.qkv + w.query + 3 * w.ffn + widest_adapter + indices) + logits * std::size_t(request.architecture.vocab_size);
}

}  // namespace

MemoryPlan plan_device_memory(const MemoryRequest& request) {
  const Architecture& architecture = request.architecture;
  const RowWidths widths(architecture, request.lora ? &*request.lora : nullptr);
  MemoryPlan plan = plan_memory(request);
  plan.panels = plan.next_policy = plan.backward_panels = 0;
  if (request.reference) plan.reference = ParameterLayout(architecture).total * sizeof(float) + plan.rope;
  const int rows = std::min(request.pass_rows, request.batch_rows);
  if (rows > 0) {
    const std::size_t batch_rows = std::size_t(request.batch_rows);
    plan.activations = room_floats(request, widths, std::size_t(rows)) * sizeof(float) + batch_rows * (index_bytes + sizeof(ops::RowNormalizer));
    if (plan.keys_values > 0)
      plan.keys_values = 2 * std::size_t(architecture.num_hidden_layers) * batch_rows * widths.keys_values * sizeof(float);
    const std::size_t logits = std::size_t(std::min(rows, head_capacity(architecture, 1)));
    plan.head = logits * (std::size_t(architecture.vocab_size) + widths.hidden + 4) * sizeof(float);
  }
  if (request.kv_cache_bytes > 0) plan.activations += sampling_floats(request, widths) * sizeof(float);
  plan.total = 0;
  for (const MemoryPart& part : parts(plan)) plan.total += part.bytes;
  return plan;
}

}  // namespace longhaul::cuda
