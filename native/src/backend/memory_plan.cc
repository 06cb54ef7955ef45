#include "backend/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "pass/plan/pass_plan.h"
#include "pass/plan/pass_settings.h"
#include "pass/rows.h"

namespace longhaul {

namespace {

/// Floats of the panels that a weight matrix is packed into.
std::size_t panel_floats(const ParameterRange& w, bool backward) {
  const int depth = backward ? w.rows : w.columns, columns = backward ? w.columns : w.rows;
  return std::size_t(ops::panel_count(columns)) * ops::panel_columns * std::size_t(depth);
}

std::size_t weight_panels(const ParameterLayout& layout, bool backward) {
  std::size_t floats = panel_floats(layout.head, backward);
  for (const LayerParameters& layer : layout.layers)
    for (const ParameterRange& w : {layer.qkv, layer.output, layer.gate_up, layer.down}) floats += panel_floats(w, backward);
  return floats;
}

std::size_t adapter_panels(const AdapterLayout& layout, bool backward) {
  std::size_t floats = 0;
  for (const LayerAdapters& layer : layout.layers)
    for (const FusedAdapter* adapter : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      if (adapter->empty()) continue;
      floats += panel_floats(adapter->a, backward);
      for (const AdapterPart& part : adapter->parts) floats += panel_floats(part.b, backward);
    }
  return floats;
}

std::size_t moment_bytes(MomentFormat format, std::size_t parameters) {
  if (format == MomentFormat::fp32) return parameters * 2 * sizeof(float);
  return parameters * 2 + (parameters + Moments::block - 1) / Moments::block * 2 * sizeof(float);
}

/// Floats of the attention kernels' working memory (cpu/attention_kernels.h): keys, values and their gradients in several orders, and two
/// copies of the scores of a slice of queries.
std::size_t attention_floats(const Architecture& architecture, int chain) {
  const std::size_t keys = std::size_t(ops::panel_count(std::max(chain, 1))) * ops::panel_columns,
                    width = std::size_t(architecture.head_dim),
                    padded = std::size_t(ops::panel_count(architecture.head_dim)) * ops::panel_columns;
  const std::size_t heads = std::size_t(architecture.queries_per_key_value());
  const std::size_t scores = std::max(std::min(std::size_t{128} << 10, 96 * keys), 16 * heads * keys);
  return keys * (2 * width + 3 * padded) + 2 * scores;
}

/// Floats of one thread's own buffers (CpuScratch, the kernels).
std::size_t thread_floats(const Architecture& architecture, const RowWidths& widths, int chain) {
  constexpr std::size_t forward_tile = 192, backward_tile = 128, head_tile = 96, transposed = 192 * 512, packed = 512 * 256;
  // Scratch space of moderate size allocates a quarter more than asked for (base/aligned_buffer.h).
  return forward_tile * (3 * widths.hidden + 3 * widths.ffn + widths.adapters) + backward_tile * (widths.hidden + widths.ffn) +
         head_tile * widths.hidden + packed + (transposed + attention_floats(architecture, chain)) * 5 / 4;
}

std::size_t activation_floats(const MemoryRequest& request, const RowWidths& widths, std::size_t rows) {
  const std::size_t layers = std::size_t(request.architecture.num_hidden_layers), kept_layers = request.recompute ? 1 : layers;
  std::size_t floats = rows * (layers * widths.hidden + kept_layers * widths.layer() + widths.final() + widths.backward());
  floats += std::min(std::size_t(2), (rows + piece_rows - 1) / piece_rows) * std::size_t(piece_rows) * widths.piece();
  if (!request.lora)
    floats += rounded_rows(std::min(request.batch_rows, request.architecture.vocab_size)) * widths.hidden;  // embedding's gradient
  return floats + std::size_t(request.threads) * thread_floats(request.architecture, widths, request.longest_chain);
}

}  // namespace

MemoryPlan plan_memory(const MemoryRequest& request) {
  const Architecture& architecture = request.architecture;
  const ParameterLayout layout(architecture);
  const AdapterLayout adapters = request.lora ? AdapterLayout(architecture, *request.lora) : AdapterLayout();
  const RowWidths widths(architecture, request.lora ? &*request.lora : nullptr);
  const std::size_t trained = request.lora ? adapters.total : layout.total;
  const std::size_t base_panels = weight_panels(layout, false) * sizeof(float);
  const std::size_t own_panels = adapter_panels(adapters, false) * sizeof(float);
  const int rows = std::min(request.pass_rows, request.batch_rows);

  MemoryPlan plan;
  plan.weights = (layout.total + adapters.total) * sizeof(float);
  plan.panels = base_panels + own_panels;
  plan.moments = moment_bytes(request.moments, trained);
  plan.next_policy = trained * sizeof(float) + plan.moments + (request.lora ? own_panels : base_panels);
  plan.gradients = trained * sizeof(float);
  plan.backward_panels = (weight_panels(layout, true) + adapter_panels(adapters, true)) * sizeof(float);
  plan.rope = std::size_t(architecture.max_position_embeddings) * std::size_t(architecture.head_dim) * sizeof(float);
  if (request.reference) plan.reference = layout.total * sizeof(float) + base_panels + plan.rope;
  plan.kv_cache = request.kv_cache_bytes;
  if (rows > 0) {
    plan.activations = activation_floats(request, widths, rounded_rows(rows)) * sizeof(float);
    // Keys and values of all passes are kept, and so are their gradients.
    if (count_passes(request.batch_rows, request.pass_rows) > 1)
      plan.keys_values = 2 * std::size_t(architecture.num_hidden_layers) * rounded_rows(request.batch_rows) * widths.keys_values * sizeof(float);
    const std::size_t logits = rounded_rows(std::min(rows, head_capacity(architecture, request.threads)));
    plan.head = (logits * (std::size_t(architecture.vocab_size) + widths.hidden) + rounded_rows(rows) * widths.hidden) * sizeof(float);
  }
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
