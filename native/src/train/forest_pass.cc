#include "train/forest_pass.h"

#include <algorithm>
#include <cstring>

namespace longhaul {

namespace {

/// Rows whose logits exist at once.
constexpr int head_rows = 192;

void gather(const float* from, std::span<const int32_t> rows, size_t width, float* to) {
  for (size_t i = 0; i < rows.size(); ++i) std::memcpy(to + i * width, from + size_t(rows[i]) * width, width * sizeof(float));
}

}  // namespace

bool ForestPass::last(int layer) const { return layer + 1 == architecture_->num_hidden_layers; }

int ForestPass::outputs(int layer) const { return last(layer) ? int(output_rows_.size()) : forest_->rows(); }

void ForestPass::plan(std::span<const int32_t> target_rows) {
  output_rows_.assign(target_rows.begin(), target_rows.end());
  std::sort(output_rows_.begin(), output_rows_.end());
  output_rows_.erase(std::unique(output_rows_.begin(), output_rows_.end()), output_rows_.end());
  std::vector<int32_t> output_of(forest_->rows(), -1);
  for (size_t i = 0; i < output_rows_.size(); ++i) output_of[output_rows_[i]] = int32_t(i);
  target_outputs_.clear();
  for (const int32_t row : target_rows) target_outputs_.push_back(output_of[row]);

  all_queries_.clear();
  output_queries_.clear();
  for (size_t n = 0; n < forest_->nodes.size(); ++n) {
    const ForestNode& node = forest_->nodes[n];
    NodeQueries all, wanted;
    all.chain = wanted.chain = forest_->chain(int(n));
    for (int i = 0; i < node.rows; ++i) {
      all.places.push_back(node.position + i);
      all.outputs.push_back(node.first_row + i);
      if (output_of[node.first_row + i] < 0) continue;
      wanted.places.push_back(node.position + i);
      wanted.outputs.push_back(output_of[node.first_row + i]);
    }
    all_queries_.push_back(std::move(all));
    if (!wanted.places.empty()) output_queries_.push_back(std::move(wanted));
  }
}

void ForestPass::forward(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
                         const OnAdvance& advanced) {
  policy_ = &policy;
  architecture_ = &policy.architecture();
  op_ = &ops::table();
  forest_ = &forest;
  plan(target_rows);

  const int rows = forest.rows(), width = architecture_->hidden_size;
  layers_.resize(size_t(architecture_->num_hidden_layers));
  gather(policy.weight(policy.layout().embedding), forest.tokens, size_t(width),
         layers_[0].input.scratch(size_t(rows) * width));
  for (int layer = 0; layer < architecture_->num_hidden_layers; ++layer) {
    forward_layer(layer);
    if (advanced) advanced();
  }

  const int wanted = int(output_rows_.size());
  op_->rms_norm(final_.data(), policy.weight(policy.layout().final_norm), float(architecture_->rms_norm_eps),
                final_normed_.scratch(size_t(wanted) * width), final_inverse_.scratch(size_t(wanted)), wanted, width);
}

void ForestPass::forward_layer(int layer) {
  LayerActivations& act = layers_[layer];
  const LayerParameters& weights = policy_->layout().layers[layer];
  const LayerPanels& panels = policy_->forward_panels().layers[layer];
  const Architecture& arch = *architecture_;
  const int rows = forest_->rows(), width = arch.hidden_size, ffn = arch.intermediate_size, heads = arch.num_attention_heads,
            kv_heads = arch.num_key_value_heads, head_dim = arch.head_dim, all_heads = heads + kv_heads;
  const size_t n = size_t(rows), ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width());
  const float eps = float(arch.rms_norm_eps);

  float* normed = act.input_normed.scratch(n * width);
  op_->rms_norm(act.input.data(), policy_->weight(weights.input_norm), eps, normed, act.input_inverse.scratch(n), rows, width);
  float* qkv = act.qkv.scratch(n * ld);
  op_->matmul(normed, size_t(width), panels.qkv, qkv, ld, rows, false);
  float* saved = act.heads_saved.scratch(n * all_heads * head_dim);
  float* inverse = act.heads_inverse.scratch(n * all_heads);
  const size_t ld_saved = size_t(all_heads) * head_dim;
  op_->head_norm_rope(qkv, ld, policy_->weight(weights.query_norm), eps, forest_->positions.data(), policy_->rope_cos(),
                      policy_->rope_sin(), saved, ld_saved, inverse, size_t(all_heads), rows, heads, head_dim);
  op_->head_norm_rope(qkv + query_width, ld, policy_->weight(weights.key_norm), eps, forest_->positions.data(),
                      policy_->rope_cos(), policy_->rope_sin(), saved + query_width, ld_saved, inverse + heads,
                      size_t(all_heads), rows, kv_heads, head_dim);

  const int kept = outputs(layer);
  const size_t m = size_t(kept);
  float* attention = act.attention.scratch(m * query_width);
  float* log_sums = act.log_sums.scratch(m * heads);
  for (const NodeQueries& node : last(layer) ? output_queries_ : all_queries_)
    op_->chain_attention({qkv, ld, node.chain.data(), int(node.chain.size()), node.places.data(), node.outputs.data(),
                          int(node.places.size()), heads, kv_heads, head_dim, attention, log_sums});

  float* middle = act.middle.scratch(m * width);
  if (last(layer))
    gather(act.input.data(), output_rows_, size_t(width), middle);
  else
    std::memcpy(middle, act.input.data(), n * width * sizeof(float));
  op_->matmul(attention, query_width, panels.output, middle, size_t(width), kept, true);
  normed = act.middle_normed.scratch(m * width);
  op_->rms_norm(middle, policy_->weight(weights.post_norm), eps, normed, act.middle_inverse.scratch(m), kept, width);
  float* gate_up = act.gate_up.scratch(m * 2 * ffn);
  op_->matmul(normed, size_t(width), panels.gate_up, gate_up, size_t(2) * ffn, kept, false);
  float* activated = act.activated.scratch(m * ffn);
  op_->swiglu(gate_up, activated, kept, ffn);
  float* output = (last(layer) ? final_ : layers_[layer + 1].input).scratch(m * width);
  std::memcpy(output, middle, m * width * sizeof(float));
  op_->matmul(activated, size_t(ffn), panels.down, output, size_t(width), kept, true);
}

void ForestPass::head(std::span<const int32_t> target_tokens, float temperature,
                      const std::function<double(size_t, float)>* derivative, std::span<float> logprobs, float* gradients,
                      const OnAdvance& advanced) {
  const int width = architecture_->hidden_size, vocab = architecture_->vocab_size;
  const float inverse_temperature = 1.0f / temperature;
  float* d_normed = nullptr;
  if (gradients) {
    d_normed = d_normed_.scratch(output_rows_.size() * width);
    std::memset(d_normed, 0, output_rows_.size() * width * sizeof(float));
  }
  for (size_t first = 0; first < target_tokens.size(); first += head_rows) {
    if (advanced) advanced();
    const int count = int(std::min<size_t>(head_rows, target_tokens.size() - first));
    const std::span<const int32_t> rows = std::span<const int32_t>(target_outputs_).subspan(first, size_t(count));
    float* hidden = head_rows_.scratch(size_t(head_rows) * width);
    float* logits = logits_.scratch(size_t(head_rows) * vocab);
    gather(final_normed_.data(), rows, size_t(width), hidden);
    op_->matmul(hidden, size_t(width), policy_->forward_panels().head, logits, size_t(vocab), count, false);
    for (int i = 0; i < count; ++i) {
      const size_t target = first + size_t(i);
      float* row = logits + size_t(i) * vocab;
      const int token = target_tokens[target];
      const ops::RowNormalizer normalizer = op_->normalize_row(row, vocab, inverse_temperature);
      const float logprob = ops::row_logprob(row[token], normalizer, inverse_temperature);
      if (!logprobs.empty()) logprobs[target] = logprob;
      if (!gradients) continue;
      // ∂logprob/∂z_j = (1[j = token] − p_j) / temperature
      const double scale = -(*derivative)(target, logprob) * double(inverse_temperature);
      op_->softmax_gradient(row, vocab, normalizer, inverse_temperature, token, float(scale));
    }
    if (!gradients) continue;
    weight_gradient(policy_->layout().head, logits, hidden, count, gradients);
    float* d_rows = d_head_.scratch(size_t(head_rows) * width);
    op_->matmul(logits, size_t(vocab), backward_panels_->head, d_rows, size_t(width), count, false);
    for (int i = 0; i < count; ++i)
      op_->add(d_normed + size_t(rows[i]) * width, d_rows + size_t(i) * width, size_t(width));
  }
}

void ForestPass::logprobs(std::span<const int32_t> target_tokens, float temperature, std::span<float> out,
                          const OnAdvance& advanced) {
  head(target_tokens, temperature, nullptr, out, nullptr, advanced);
}

void ForestPass::weight_gradient(const ParameterRange& range, const float* dy, const float* x, int rows, float* gradients) {
  ops::pack(x, size_t(range.columns), rows, range.columns, panels_);
  op_->matmul_transposed(dy, size_t(range.rows), panels_, gradients + range.offset, size_t(range.columns), range.rows);
}

void ForestPass::backward(const PolicyPanels& panels, std::span<const int32_t> target_tokens, float temperature,
                          const std::function<double(size_t, float)>& derivative, float* gradients,
                          const OnAdvance& advanced) {
  backward_panels_ = &panels;
  head(target_tokens, temperature, &derivative, {}, gradients, advanced);
  const int width = architecture_->hidden_size, wanted = int(output_rows_.size());
  const ParameterLayout& layout = policy_->layout();
  float* d_hidden = d_hidden_.scratch(size_t(wanted) * width);
  std::memset(d_hidden, 0, size_t(wanted) * width * sizeof(float));
  op_->rms_norm_backward(final_.data(), policy_->weight(layout.final_norm), final_inverse_.data(), d_normed_.data(), d_hidden,
                         gradients + layout.final_norm.offset, wanted, width);
  for (int layer = architecture_->num_hidden_layers - 1; layer >= 0; --layer) {
    backward_layer(layer, gradients);
    if (advanced) advanced();
  }
  for (int i = 0; i < forest_->rows(); ++i)
    op_->add(gradients + layout.embedding.offset + size_t(forest_->tokens[i]) * width, d_hidden_.data() + size_t(i) * width,
             size_t(width));
}

// `d_hidden_` holds the gradient of the layer's output and, on return, of its input.
void ForestPass::backward_layer(int layer, float* gradients) {
  LayerActivations& act = layers_[layer];
  const LayerParameters& weights = policy_->layout().layers[layer];
  const LayerPanels& panels = backward_panels_->layers[layer];
  const Architecture& arch = *architecture_;
  const int rows = forest_->rows(), width = arch.hidden_size, ffn = arch.intermediate_size, heads = arch.num_attention_heads,
            kv_heads = arch.num_key_value_heads, head_dim = arch.head_dim, all_heads = heads + kv_heads, kept = outputs(layer);
  const size_t n = size_t(rows), m = size_t(kept), ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width());
  float* d_hidden = d_hidden_.data();

  weight_gradient(weights.down, d_hidden, act.activated.data(), kept, gradients);
  float* d_activated = d_activated_.scratch(m * ffn);
  op_->matmul(d_hidden, size_t(width), panels.down, d_activated, size_t(ffn), kept, false);
  float* d_gate_up = d_gate_up_.scratch(m * 2 * ffn);
  op_->swiglu_backward(act.gate_up.data(), d_activated, d_gate_up, kept, ffn);
  weight_gradient(weights.gate_up, d_gate_up, act.middle_normed.data(), kept, gradients);
  float* d_normed = d_normed_.scratch(n * width);
  op_->matmul(d_gate_up, size_t(2) * ffn, panels.gate_up, d_normed, size_t(width), kept, false);
  op_->rms_norm_backward(act.middle.data(), policy_->weight(weights.post_norm), act.middle_inverse.data(), d_normed, d_hidden,
                         gradients + weights.post_norm.offset, kept, width);

  weight_gradient(weights.output, d_hidden, act.attention.data(), kept, gradients);
  float* d_attention = d_attention_.scratch(m * query_width);
  op_->matmul(d_hidden, size_t(width), panels.output, d_attention, query_width, kept, false);
  float* d_qkv = d_qkv_.scratch(n * ld);
  std::memset(d_qkv, 0, n * ld * sizeof(float));
  for (const NodeQueries& node : last(layer) ? output_queries_ : all_queries_)
    op_->chain_attention_backward(
        {{act.qkv.data(), ld, node.chain.data(), int(node.chain.size()), node.places.data(), node.outputs.data(),
          int(node.places.size()), heads, kv_heads, head_dim, act.attention.data(), act.log_sums.data()},
         d_attention,
         d_qkv});
  if (last(layer)) {
    float* d_all = d_hidden_all_.scratch(n * width);
    std::memset(d_all, 0, n * width * sizeof(float));
    for (int i = 0; i < kept; ++i)
      std::memcpy(d_all + size_t(output_rows_[i]) * width, d_hidden + size_t(i) * width, size_t(width) * sizeof(float));
    d_hidden_.swap(d_hidden_all_);
    d_hidden = d_hidden_.data();
  }
  const size_t ld_saved = size_t(all_heads) * head_dim;
  op_->head_norm_rope_backward(d_qkv, ld, policy_->weight(weights.query_norm), forest_->positions.data(), policy_->rope_cos(),
                               policy_->rope_sin(), act.heads_saved.data(), ld_saved, act.heads_inverse.data(),
                               size_t(all_heads), gradients + weights.query_norm.offset, rows, heads, head_dim);
  op_->head_norm_rope_backward(d_qkv + query_width, ld, policy_->weight(weights.key_norm), forest_->positions.data(),
                               policy_->rope_cos(), policy_->rope_sin(), act.heads_saved.data() + query_width, ld_saved,
                               act.heads_inverse.data() + heads, size_t(all_heads), gradients + weights.key_norm.offset,
                               rows, kv_heads, head_dim);
  weight_gradient(weights.qkv, d_qkv, act.input_normed.data(), rows, gradients);
  op_->matmul(d_qkv, ld, panels.qkv, d_normed, size_t(width), rows, false);
  op_->rms_norm_backward(act.input.data(), policy_->weight(weights.input_norm), act.input_inverse.data(), d_normed, d_hidden,
                         gradients + weights.input_norm.offset, rows, width);
}

}  // namespace longhaul
