#include "backend/cpu_training.h"

#include "pass/driver.h"
#include "pass/forward.h"
#include "pass/head.h"

namespace longhaul {

template class ForestPass<CpuDevice>;

void CpuTraining::prepare(const ForestPassSettings& settings, int most_rows) {
  ForestPass::prepare(settings, most_rows);
  stale_ = true;
}

double CpuTraining::gradient_norm() { return longhaul::gradient_norm(*policy_, all_gradients(), device_.pool()); }

void CpuTraining::step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                       const OptimizerSettings& settings) {
  optimizer_step(next, from, reset_moments, all_gradients(), norm, learning_rate, settings, device_.pool());
  stale_ = true;
}

void CpuTraining::collect(Policy& next) { next.pack_forward(&device_.pool()); }

ops::ChainAttention CpuTraining::chain_attention(const PassRange& pass, int layer, int index, int kv_head) {
  const Architecture& arch = architecture();
  const Segment& segment = plan_.segments[size_t(index)];
  LayerActivations<CpuDevice>& act = activations(layer);
  std::vector<int32_t>& chain = CpuDevice::scratch().chain;
  plan_.chain(index, chain);
  ops::ChainAttention args{};
  args.qkv = act.qkv.data();
  args.ld_qkv = size_t(arch.qkv_width());
  // With a single pass, the keys and values of all rows lie beside their queries.
  args.keys_values = several_passes() ? keys_values_[size_t(layer)].data() : act.qkv.data() + arch.query_width();
  args.ld_keys_values = several_passes() ? size_t(2) * arch.key_value_width() : args.ld_qkv;
  args.chain_rows = chain.data();
  args.chain_length = int(chain.size());
  if (last(layer)) {
    args.query_places = plan_.output_positions.data() + segment.first_output;
    args.query_rows = plan_.output_pass_rows.data() + segment.first_output;
    args.query_outputs = plan_.counting.data() + (segment.first_output - pass.first_output);
    args.queries = segment.outputs;
  } else {
    args.query_places = forest_->positions.data() + segment.first_row;
    args.query_rows = plan_.counting.data() + (segment.first_row - pass.first_row);
    args.query_outputs = args.query_rows;
    args.queries = segment.rows;
  }
  args.first_kv_head = kv_head;
  args.last_kv_head = kv_head + 1;
  args.heads = arch.num_attention_heads;
  args.kv_heads = arch.num_key_value_heads;
  args.head_dim = arch.head_dim;
  args.out = act.attention.data();
  args.log_sums = act.log_sums.data();
  return args;
}

void CpuTraining::attend(const PassRange& pass, int layer, bool saving) {
  const size_t kv_heads = size_t(architecture().num_key_value_heads);
  device_.pool().parallel_for(size_t(pass.segments) * kv_heads, [&](size_t item) {
    const int segment = plan_.by_work[size_t(pass.first_segment) + item / kv_heads];
    if (last(layer) && plan_.segments[size_t(segment)].outputs == 0) return;
    ops::ChainAttention args = chain_attention(pass, layer, segment, int(item % kv_heads));
    if (!saving) args.log_sums = nullptr;
    device_.op().chain_attention(args);
  });
}

}  // namespace longhaul
