#include "backend/backward_linear.h"

namespace longhaul {

BackwardLinears backward_linears(const Policy& policy, const BackwardPanels& panels, int layer) {
  const LayerParameters& parameters = policy.layout().layers[layer];
  const LayerPanels& weights = panels.weights.layers[layer];
  BackwardLinears all;
  all.qkv = {&weights.qkv, parameters.qkv};
  all.output = {&weights.output, parameters.output};
  all.gate_up = {&weights.gate_up, parameters.gate_up};
  all.down = {&weights.down, parameters.down};
  const Adapters* adapters = policy.adapters();
  if (!adapters) return all;

  const LayerAdapters& layout = adapters->layout().layers[layer];
  const LayerAdapterPanels& adapter_panels = panels.adapters[layer];
  const auto attach = [&](BackwardLinear& linear, const FusedAdapter& adapter, const FusedAdapterPanels& its_panels) {
    linear.frozen = true;
    if (adapter.empty()) return;
    linear.adapter = &adapter;
    linear.adapter_panels = &its_panels;
    linear.adapter_scale = adapters->settings().scale();
  };
  attach(all.qkv, layout.qkv, adapter_panels.qkv);
  attach(all.output, layout.output, adapter_panels.output);
  attach(all.gate_up, layout.gate_up, adapter_panels.gate_up);
  attach(all.down, layout.down, adapter_panels.down);
  return all;
}

void apply_backward(const ops::Table& op, const BackwardLinear& linear, const float* dy, size_t ld_dy, float* dx, size_t ld_dx,
                    int rows, float* d_down) {
  if (dx) op.matmul(dy, ld_dy, *linear.panels, dx, ld_dx, rows, false);
  if (!linear.adapter) return;
  const size_t width = size_t(linear.adapter_width());
  for (size_t i = 0; i < linear.adapter->parts.size(); ++i) {
    const AdapterPart& part = linear.adapter->parts[i];
    op.matmul(dy + part.first_output, ld_dy, linear.adapter_panels->b[i], d_down + i * part.b.columns, width, rows, false);
  }
  op.scale_rows(d_down, width, linear.adapter_scale, rows, int(width));
  if (dx) op.matmul(d_down, width, linear.adapter_panels->a, dx, ld_dx, rows, true);
}

void PackedLinear::resize(const BackwardLinear& linear, int rows) {
  if (linear.trained()) x.resize(rows, linear.inputs());
  down.resize(linear.adapter ? linear.adapter->parts.size() : 0);
  for (size_t i = 0; i < down.size(); ++i) down[i].resize(rows, linear.adapter->parts[i].b.columns);
}

void PackedLinear::write(const BackwardLinear& linear, const float* rows_x, size_t ld_x, const float* rows_down, int first,
                         int count) {
  if (linear.trained()) x.write(rows_x, ld_x, first, count);
  for (PackedRows& part : down) {
    part.write(rows_down, size_t(linear.adapter_width()), first, count);
    rows_down += part.columns();
  }
}

void add_gradients(GradientWork& work, const BackwardLinear& linear, float* gradients, const float* dy, size_t ld_dy,
                   const PackedLinear& x, const float* d_down) {
  if (!linear.frozen) {
    const ParameterRange& w = linear.weight;
    work.add({gradients + w.offset, size_t(w.columns), dy, ld_dy, &x.x, w.rows});
    return;
  }
  if (!linear.adapter) return;
  const ParameterRange& a = linear.adapter->a;
  work.add({gradients + a.offset, size_t(a.columns), d_down, size_t(linear.adapter_width()), &x.x, a.rows});
  for (size_t i = 0; i < linear.adapter->parts.size(); ++i) {
    const AdapterPart& part = linear.adapter->parts[i];
    work.add({gradients + part.b.offset, size_t(part.b.columns), dy + part.first_output, ld_dy, &x.down[i], part.b.rows});
  }
}

}  // namespace longhaul
