#include "backend/cpu_device.h"

#include <algorithm>
#include <utility>

#include "backend/inference/kv_cache.h"

namespace longhaul {

namespace {

std::vector<CpuLinears> views(const Policy& policy, const Weights& computed, const WeightPanels& weights,
                              const std::vector<LayerAdapterPanels>* panels) {
  const Adapters* adapters = policy.adapters();
  const auto adapter_of = [&](size_t layer, Part part) -> const FusedAdapterPanels& { return part_of((*panels)[layer], part); };
  return linears_of<const ops::Panels*>(
      policy.layout(), adapters ? &adapters->layout() : nullptr, adapters ? adapters->settings().scale() : 0,
      [&](size_t layer, Part part) { return &part_of(weights.layers[layer], part); },
      [&](const ParameterRange& bias) { return computed.at(bias); },
      [&](size_t layer, Part part) { return &adapter_of(layer, part).a; },
      [&](size_t layer, Part part, size_t i) { return &adapter_of(layer, part).b[i]; });
}

}  // namespace

void CpuDevice::start() {
  op_ = &ops::table(arithmetic_);
  policy_->pack_forward(&pool_, arithmetic_);
  const Adapters* adapters = policy_->adapters();
  linears_ = views(*policy_, weights(), weights().forward_panels(), adapters ? &adapters->computed(arithmetic_).forward_panels() : nullptr);
}

void CpuDevice::pack_backward() {
  sums_.begin();
  const bool other = std::exchange(changed_, false) || packed_policy_ != policy_;
  if (policy_->adapters()) {
    if (packed_base_.lock() != policy_->shared_weights()) {
      weights().pack_backward(panels_.weights, &pool_);
      packed_base_ = policy_->shared_weights();
    }
    if (other) policy_->adapters()->computed(arithmetic_).pack_backward(panels_.adapters, &pool_);
  } else if (other) {
    packed_base_.reset();
    weights().pack_backward(panels_.weights, &pool_);
  }
  packed_policy_ = policy_;
  backward_linears_ = views(*policy_, weights(), panels_.weights, frozen() ? &panels_.adapters : nullptr);
}

float* CpuDevice::zeros(CpuBuffer<float>& buffer, size_t n) {
  float* all = buffer.room(n);
  constexpr size_t block = size_t{1} << 18;
  pool_.parallel_for((n + block - 1) / block, [&](size_t b) { std::memset(all + b * block, 0, std::min(block, n - b * block) * sizeof(float)); });
  return all;
}

void CpuDevice::gather(Matrix<const float> from, const int32_t* indices, Matrix<float> to, int rows, int width) const {
  const size_t floats = size_t(width);
  if (!indices && from.ld == floats && to.ld == floats) {
    std::memcpy(to.data, from.data, size_t(rows) * floats * sizeof(float));
    return;
  }
  for (int i = 0; i < rows; ++i)
    std::memcpy(to.data + size_t(i) * to.ld, from.data + size_t(indices ? indices[i] : i) * from.ld, floats * sizeof(float));
}

void CpuDevice::scatter(Matrix<const float> from, const int32_t* indices, Matrix<float> to, int rows, int width) const {
  for (int i = 0; i < rows; ++i)
    std::memcpy(to.data + size_t(indices[i]) * to.ld, from.data + size_t(i) * from.ld, size_t(width) * sizeof(float));
}

void CpuDevice::row_logprobs(const float* logits, int rows, float inverse_temperature, const int32_t* tokens, ops::RowNormalizer* normalizers,
                             float* logprobs, float* entropies) const {
  const int vocab = architecture().vocab_size;
  for (int i = 0; i < rows; ++i) {
    const float* row = logits + size_t(i) * vocabulary();
    normalizers[i] = op_->normalize_row(row, vocab, inverse_temperature);
    logprobs[i] = ops::row_logprob(row[tokens[i]], normalizers[i], inverse_temperature);
    if (entropies) entropies[i] = op_->row_entropy(row, vocab, normalizers[i], inverse_temperature);
  }
}

void CpuDevice::softmax_gradient(float* logits, int rows, float inverse_temperature, const int32_t* tokens,
                                 const ops::RowNormalizer* normalizers, const float* scales, const float* entropies,
                                 const float* entropy_scales) const {
  const int vocab = architecture().vocab_size;
  for (int i = 0; i < rows; ++i) {
    float* row = logits + size_t(i) * vocabulary();
    if (entropies)
      op_->softmax_entropy_gradient(row, vocab, normalizers[i], inverse_temperature, tokens[i], scales[i], entropies[i], entropy_scales[i]);
    else
      op_->softmax_gradient(row, vocab, normalizers[i], inverse_temperature, tokens[i], scales[i]);
  }
}

float* CpuDevice::gradient_sums(const ParameterRange& range, const PieceRange& piece, float* gradients) {
  return rounds() ? sums_.at(range, piece, gradients, policy_->trained().size()) : gradients + range.offset;
}

void CpuDevice::rounded_linear(const CpuLinear& linear, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate, float* down) const {
  if (rows == 0) return;
  const size_t outputs = size_t(linear.outputs()), down_width = size_t(linear.adapter_width());
  const Matrix<float> sums = accumulate ? Matrix<float>{scratch().sums.room(size_t(rows) * outputs), outputs} : y;
  product(linear.weight, x, sums, rows, false);
  if (linear.bias) add_bias(sums, linear.bias, rows, linear.outputs());
  if (linear.adapter) {
    const Matrix<float> to{down, down_width};
    product(linear.a, x, to, rows, false);
    scale(to, linear.adapter_scale, rows, linear.adapter_width());
    round(to, rows, linear.adapter_width());
    for (size_t i = 0; i < linear.adapter->parts.size(); ++i) {
      const AdapterPart& part = linear.adapter->parts[i];
      const size_t width = size_t(part.b.rows);
      float* own = scratch().adapter_sums.room(size_t(rows) * width);
      product(linear.b[i], {down + i * size_t(part.b.columns), down_width}, {own, width}, rows, false);
      for (int row = 0; row < rows; ++row) op_->add(sums.data + size_t(row) * sums.ld + size_t(part.first_output), own + size_t(row) * width, width);
    }
  }
  for (int row = 0; accumulate && row < rows; ++row) op_->add(y.data + size_t(row) * y.ld, sums.data + size_t(row) * sums.ld, outputs);
  round(y, rows, linear.outputs());
}

void CpuDevice::rounded_linear_backward(const CpuLinear& linear, Matrix<const float> dy, float* dx, int rows, float* d_down) const {
  if (rows == 0) return;
  const size_t inputs = size_t(linear.inputs()), down_width = size_t(linear.adapter_width());
  const Matrix<float> to{dx, inputs};
  if (dx) product(linear.weight, dy, to, rows, false);
  if (linear.adapter) {
    const Matrix<float> down{d_down, down_width};
    for (size_t i = 0; i < linear.adapter->parts.size(); ++i) {
      const AdapterPart& part = linear.adapter->parts[i];
      product(linear.b[i], {dy.data + part.first_output, dy.ld}, {d_down + i * size_t(part.b.columns), down_width}, rows, false);
    }
    scale(down, linear.adapter_scale, rows, int(down_width));
    round(down, rows, int(down_width));
    if (dx) {
      const Matrix<float> own{scratch().adapter_sums.room(size_t(rows) * inputs), inputs};
      product(linear.a, {d_down, down_width}, own, rows, false);
      op_->add(dx, own.data, size_t(rows) * inputs);
    }
  }
  if (dx) round(to, rows, linear.inputs());
}

void CpuDevice::add_head_gradient(const float* d_logits, const PackedRows& x, const PieceRange& chunk, float* gradients) {
  GradientWork work(threads());
  const ParameterRange& head = layout().head;
  work.add({gradient_sums(head, chunk, gradients), hidden(), d_logits, vocabulary(), &x, head.rows});
  pool_.parallel_for(work.size(), [&](size_t item) { work.run(item, *op_); });
}

void CpuDevice::sum_rows(Matrix<const float> from, RowLists lists, Matrix<float> to, int width) const {
  for (int i = 0; i < lists.count; ++i)
    for (int32_t entry = lists.starts[i]; entry < lists.starts[i + 1]; ++entry) {
      const float* row = from.data + size_t(lists.indices[entry]) * from.ld;
      float* sum = to.data + size_t(i) * to.ld;
      if (entry == lists.starts[i])
        std::memcpy(sum, row, size_t(width) * sizeof(float));
      else
        op_->add(sum, row, size_t(width));
    }
  round(to, lists.count, width);
}

void CpuDevice::add_rows(Matrix<const float> from, RowLists lists, const int32_t* targets, Matrix<float> to, int width) const {
  constexpr int lists_per_task = 64;
  tiles(lists.count, lists_per_task, [&](RowRange at) {
    for (int i = at.first; i < at.first + at.count; ++i)
      for (int32_t entry = lists.starts[i]; entry < lists.starts[i + 1]; ++entry)
        op_->add(to.data + size_t(targets[i]) * to.ld, from.data + size_t(lists.indices ? lists.indices[entry] : entry) * from.ld, size_t(width));
  });
}

ops::ChainAttention CpuDevice::chain_attention(const CpuArrays& arrays, const ForestAttention<float>& attention, int index,
                                               int kv_head) const {
  const PassPlan& plan = *arrays.plan;
  const Segment& segment = plan.segments[size_t(index)];
  std::vector<int32_t>& chain = scratch().chain;
  plan.chain(index, chain);
  ops::ChainAttention args{};
  args.qkv = attention.qkv;
  args.ld_qkv = size_t(architecture().qkv_width());
  args.keys_values = attention.keys_values.data;
  args.ld_keys_values = attention.keys_values.ld;
  args.chain_rows = chain.data();
  args.chain_length = int(chain.size());
  if (attention.of_outputs) {
    args.query_places = plan.output_positions.data() + segment.first_output;
    args.query_rows = plan.output_pass_rows.data() + segment.first_output;
    args.query_outputs = plan.counting.data() + (segment.first_output - arrays.pass->first_output);
    args.queries = segment.outputs;
  } else {
    args.query_places = arrays.forest->positions.data() + segment.first_row;
    args.query_rows = plan.counting.data() + (segment.first_row - arrays.pass->first_row);
    args.query_outputs = args.query_rows;
    args.queries = segment.rows;
  }
  args.first_kv_head = kv_head;
  args.last_kv_head = kv_head + 1;
  args.heads = architecture().num_attention_heads;
  args.kv_heads = architecture().num_key_value_heads;
  args.head_dim = architecture().head_dim;
  args.out = attention.out;
  args.log_sums = attention.log_sums;
  return args;
}

void CpuDevice::attention(const CpuArrays& arrays, const ForestAttention<float>& attention) const {
  const size_t kv_heads = size_t(architecture().num_key_value_heads);
  pool_.parallel_for(size_t(arrays.pass->segments) * kv_heads, [&](size_t item) {
    const int segment = arrays.plan->by_work[size_t(arrays.pass->first_segment) + item / kv_heads];
    if (attention.of_outputs && arrays.plan->segments[size_t(segment)].outputs == 0) return;
    op_->chain_attention(chain_attention(arrays, attention, segment, int(item % kv_heads)));
  });
}

void CpuDevice::attention_backward(const CpuArrays& arrays, const ForestAttention<float>& forward,
                                   const ForestAttentionGradients<float>& to) const {
  const size_t kv_heads = size_t(architecture().num_key_value_heads);
  const PassPlan& plan = *arrays.plan;
  pool_.parallel_for(size_t(arrays.pass->groups) * kv_heads, [&](size_t item) {
    const SegmentGroup& group = plan.groups[size_t(arrays.pass->first_group) + item / kv_heads];
    for (int i = group.first; i < group.first + group.count; ++i) {
      const int segment = plan.group_segments[size_t(i)];
      if (forward.of_outputs && plan.segments[size_t(segment)].outputs == 0) continue;
      const ops::ChainAttention attention = chain_attention(arrays, forward, segment, int(item % kv_heads));
      op_->chain_attention_backward({attention, to.d_out, to.d_qkv, to.d_keys_values});
    }
  });
}

int CpuDevice::unit_rows(int count) const {
  constexpr int most = 192;
  const int rounds = (count + threads() * most - 1) / (threads() * most);
  return (count + threads() * rounds - 1) / (threads() * rounds);
}

int CpuDevice::attention_rows(const FeedRows& rows) const {
  constexpr int most = 96, score_budget = 192 * 1024;
  return std::clamp(score_budget / rows.longest / architecture().queries_per_key_value(), kernel_rows, most);
}

void CpuDevice::store(KvCache& cache, int layer, const FeedRows* rows, RowRange at, const float* qkv) const {
  const Architecture& arch = architecture();
  op_->store_keys_values(qkv, size_t(arch.qkv_width()), at.count, rows->positions.data() + at.first, rows->block_tables.data() + at.first,
                         cache.keys(0, layer, 0), cache.block_stride(), cache.head_stride(), arch.num_attention_heads,
                         arch.num_key_value_heads, arch.head_dim);
}

void CpuDevice::attend(KvCache& cache, int layer, const FeedRows* rows, RowRange at, const float* qkv, float* out) const {
  const int together = attention_rows(*rows);
  ops::PagedAttention args{};
  args.ld_qkv = size_t(architecture().qkv_width());
  args.cache = cache.keys(0, layer, 0);
  args.block_stride = cache.block_stride();
  args.head_stride = cache.head_stride();
  args.heads = architecture().num_attention_heads;
  args.kv_heads = architecture().num_key_value_heads;
  args.head_dim = architecture().head_dim;
  for (int i = 0; i < at.count; i += together) {
    args.qkv = qkv + size_t(i) * args.ld_qkv;
    args.rows = std::min(together, at.count - i);
    args.positions = rows->positions.data() + at.first + i;
    args.block_tables = rows->block_tables.data() + at.first + i;
    args.out = out + size_t(i) * size_t(architecture().query_width());
    op_->paged_attention(args);
  }
}

void CpuDevice::draw(const float* logits, int rows, std::span<const DrawRequest> draws, std::span<Drawn> drawn) const {
  constexpr int rows_per_task = 8;
  tiles(rows, rows_per_task, [&](RowRange at) {
    for (int row = at.first; row < at.first + at.count; ++row)
      drawn[size_t(row)] = longhaul::draw(logits + size_t(row) * vocabulary(), int(vocabulary()), draws[size_t(row)]);
  });
}

}  // namespace longhaul
