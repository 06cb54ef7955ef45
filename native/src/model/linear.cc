#include "model/linear.h"

namespace longhaul {

LayerLinears linears(const Policy& policy, int layer) {
  const Weights& weights = policy.weights();
  const LayerPanels& panels = weights.forward_panels().layers[size_t(layer)];
  const ParameterRange& bias = policy.layout().layers[size_t(layer)].qkv_bias;
  LayerLinears all;
  all.qkv.panels = &panels.qkv;
  if (!bias.empty()) all.qkv.bias = weights.at(bias);
  all.output.panels = &panels.output;
  all.gate_up.panels = &panels.gate_up;
  all.down.panels = &panels.down;
  if (const Adapters* adapters = policy.adapters()) {
    const LayerAdapters& places = adapters->layout().layers[size_t(layer)];
    const LayerAdapterPanels& packed = adapters->forward_panels()[size_t(layer)];
    const auto attach = [&](Linear& linear, const FusedAdapter& adapter, const FusedAdapterPanels& adapter_panels) {
      if (adapter.empty()) return;
      linear.adapter = &adapter;
      linear.adapter_panels = &adapter_panels;
      linear.adapter_scale = adapters->settings().scale();
    };
    attach(all.qkv, places.qkv, packed.qkv);
    attach(all.output, places.output, packed.output);
    attach(all.gate_up, places.gate_up, packed.gate_up);
    attach(all.down, places.down, packed.down);
  }
  return all;
}

void adapt_down(const ops::Table& op, const Linear& linear, const float* x, size_t ldx, int rows, float* down_out) {
  if (!linear.adapter) return;
  const int width = linear.adapter_width();
  op.matmul(x, ldx, linear.adapter_panels->a, down_out, size_t(width), rows, false);
  op.scale_rows(down_out, size_t(width), linear.adapter_scale, rows, width);
}

void finish(const ops::Table& op, const Linear& linear, const float* down_out, float* y, size_t ldy, int rows) {
  if (linear.bias) op.add_bias(y, ldy, linear.bias, rows, linear.outputs());
  if (!linear.adapter) return;
  // The chain of multiply-adds of each output element continues from the frozen matrix's result.
  const std::vector<AdapterPart>& parts = linear.adapter->parts;
  const size_t width = size_t(linear.adapter_width()), rank = width / parts.size();
  for (size_t p = 0; p < parts.size(); ++p)
    op.matmul(down_out + p * rank, width, linear.adapter_panels->b[p], y + parts[p].first_output, ldy, rows, true);
}

void apply(const ops::Table& op, const Linear& linear, const float* x, size_t ldx, float* y, size_t ldy, int rows,
           bool accumulate, float* down_out) {
  op.matmul(x, ldx, *linear.panels, y, ldy, rows, accumulate);
  adapt_down(op, linear, x, ldx, rows, down_out);
  finish(op, linear, down_out, y, ldy, rows);
}

}  // namespace longhaul
