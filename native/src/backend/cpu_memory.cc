#include "backend/cpu_memory.h"

#include <algorithm>

#include "ops/ops.h"
#include "pass/plan/pass_settings.h"

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

std::size_t working_floats(const MemoryRequest& request, const RowWidths& widths, std::size_t rows) {
  const std::size_t pieces = std::min(std::size_t(2), (rows + piece_rows - 1) / piece_rows);
  return pieces * std::size_t(piece_rows) * widths.piece() +
         std::size_t(request.threads) * thread_floats(request.architecture, widths, request.longest_chain);
}

void add_panels(const MemoryRequest& request, MemoryPlan& plan) {
  const ParameterLayout layout(request.architecture);
  const AdapterLayout adapters = request.lora ? AdapterLayout(request.architecture, *request.lora) : AdapterLayout();
  const std::size_t base = weight_panels(layout, false) * sizeof(float), own = adapter_panels(adapters, false) * sizeof(float);
  plan.panels = base + own;
  plan.next_policy = plan.gradients + plan.moments + (request.lora ? own : base);
  plan.backward_panels = (weight_panels(layout, true) + adapter_panels(adapters, true)) * sizeof(float);
  if (request.reference) plan.reference += base;
}

void add_for_bf16(const MemoryRequest& request, MemoryPlan& plan) {
  add_panels(request, plan);
  const std::size_t base = ParameterLayout(request.architecture).total * sizeof(float),
                    own = request.lora ? AdapterLayout(request.architecture, *request.lora).total * sizeof(float) : 0;
  plan.panels += base + own;
  plan.next_policy += request.lora ? own : base;
  plan.gradients *= 3;
  if (request.reference) plan.reference += base;
}

}  // namespace

MemoryPlan plan_memory(const MemoryRequest& request, ops::Arithmetic arithmetic) {
  return plan_memory(request, {rounded_rows, working_floats, arithmetic == ops::Arithmetic::bf16 ? add_for_bf16 : add_panels});
}

}  // namespace longhaul
