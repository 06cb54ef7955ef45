#include "pass/plan/memory_plan.h"

#include <algorithm>
#include <cstdio>

#include "pass/plan/pass_plan.h"

namespace longhaul {

namespace {

std::size_t moment_bytes(MomentFormat format, std::size_t parameters) {
  if (format == MomentFormat::fp32) return parameters * 2 * sizeof(float);
  return parameters * 2 + (parameters + Moments::block - 1) / Moments::block * 2 * sizeof(float);
}

}  // namespace

MemoryPlan plan_memory(const MemoryRequest& request, const DeviceMemory& device) {
  const Architecture& architecture = request.architecture;
  const ParameterLayout layout(architecture);
  const AdapterLayout adapters = request.lora ? AdapterLayout(architecture, *request.lora) : AdapterLayout();
  const RowWidths widths(architecture, request.lora ? &*request.lora : nullptr);
  const std::size_t trained = request.lora ? adapters.total : layout.total;
  const std::size_t layers = std::size_t(architecture.num_hidden_layers), kept_layers = request.recompute ? 1 : layers;
  const int pass_rows = std::min(request.pass_rows, request.batch_rows);

  MemoryPlan plan;
  plan.weights = (layout.total + adapters.total) * sizeof(float);
  plan.moments = moment_bytes(request.moments, trained);
  plan.gradients = trained * sizeof(float);
  plan.rope = std::size_t(architecture.max_position_embeddings) * std::size_t(architecture.head_dim) * sizeof(float);
  if (request.reference) plan.reference = layout.total * sizeof(float) + plan.rope;
  plan.kv_cache = request.kv_cache_bytes;
  if (pass_rows > 0) {
    const std::size_t rows = device.rows(pass_rows);
    std::size_t floats = rows * (layers * widths.hidden + kept_layers * widths.layer() + widths.final() + widths.backward());
    if (!request.lora) floats += device.rows(std::min(request.batch_rows, architecture.vocab_size)) * widths.hidden;  // embedding's gradient
    plan.activations = (floats + device.working_floats(request, widths, rows)) * sizeof(float);
    // Keys and values of all passes are kept, and so are their gradients.
    if (count_passes(request.batch_rows, request.pass_rows) > 1)
      plan.keys_values = 2 * layers * device.rows(request.batch_rows) * widths.keys_values * sizeof(float);
    const std::size_t logits = device.rows(std::min(pass_rows, head_capacity(architecture, request.threads)));
    plan.head = (logits * (std::size_t(architecture.vocab_size) + widths.hidden + 4) + rows * widths.hidden) * sizeof(float);
  }
  device.add(request, plan);
  for (const MemoryPart& part : parts(plan)) plan.total += part.bytes;
  return plan;
}

std::array<MemoryPart, 12> parts(const MemoryPlan& plan) {
  return {{{"weights", "weights", plan.weights},
           {"panels", "panels", plan.panels},
           {"moments", "moments", plan.moments},
           {"next_policy", "next policy", plan.next_policy},
           {"gradients", "gradients", plan.gradients},
           {"backward_panels", "backward panels", plan.backward_panels},
           {"reference", "reference", plan.reference},
           {"kv_cache", "KV cache", plan.kv_cache},
           {"rope", "rotary table", plan.rope},
           {"activations", "activations", plan.activations},
           {"keys_values", "kept keys and values", plan.keys_values},
           {"head", "head", plan.head}}};
}

std::string describe(const MemoryPlan& plan, std::size_t available) {
  const bool large = plan.total >= std::size_t{1} << 30;
  const double unit = large ? double(std::size_t{1} << 30) : double(std::size_t{1} << 20);
  const char* unit_name = large ? "GiB" : "MiB";
  const auto figure = [unit](std::size_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", double(bytes) / unit);
    return std::string(text);
  };
  std::string text = "needs " + figure(plan.total) + " " + unit_name + " (";
  const char* separator = "";
  for (const MemoryPart& part : parts(plan)) {
    if (part.bytes == 0) continue;
    text += separator + std::string(part.text) + " " + figure(part.bytes);
    separator = ", ";
  }
  return text + "); " + figure(available) + " " + unit_name + " are free";
}

}  // namespace longhaul
