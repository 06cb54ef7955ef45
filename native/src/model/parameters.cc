#include "model/parameters.h"

#include <algorithm>

namespace longhaul {

ParameterLayout::ParameterLayout(const Architecture& architecture) {
  const auto place = [this](int rows, int columns, bool decayed) {
    const ParameterRange range{total, rows, columns, decayed};
    total += range.size();
    return range;
  };
  const int hidden = architecture.hidden_size, head = architecture.head_dim, ffn = architecture.intermediate_size;
  embedding = place(architecture.vocab_size, hidden, false);
  for (int i = 0; i < architecture.num_hidden_layers; ++i) {
    LayerParameters layer;
    layer.input_norm = place(1, hidden, false);
    layer.qkv = place(architecture.qkv_width(), hidden, true);
    if (architecture.has_qkv_bias()) layer.qkv_bias = place(1, architecture.qkv_width(), false);
    if (architecture.has_head_norms()) {
      layer.query_norm = place(1, head, false);
      layer.key_norm = place(1, head, false);
    }
    layer.output = place(hidden, architecture.query_width(), true);
    layer.post_norm = place(1, hidden, false);
    layer.gate_up = place(2 * ffn, hidden, true);
    layer.down = place(hidden, ffn, true);
    layers.push_back(layer);
  }
  final_norm = place(1, hidden, false);
  this->head = architecture.tie_word_embeddings ? embedding : place(architecture.vocab_size, hidden, true);
}

std::vector<ParameterRange> ParameterLayout::ranges() const {
  std::vector<ParameterRange> all{embedding};
  for (const LayerParameters& layer : layers)
    for (const ParameterRange& range : {layer.input_norm, layer.qkv, layer.qkv_bias, layer.query_norm, layer.key_norm,
                                        layer.output, layer.post_norm, layer.gate_up, layer.down})
      if (!range.empty()) all.push_back(range);
  all.push_back(final_norm);
  if (head.offset != embedding.offset) all.push_back(head);
  return all;
}

std::vector<TensorPlace> tensor_places(const Architecture& architecture, const ParameterLayout& layout) {
  std::vector<TensorPlace> places;
  const auto matrix = [&](std::string name, const ParameterRange& range, int first_row, int rows, bool residual = false) {
    places.push_back({std::move(name), {rows, range.columns}, range.offset + size_t(first_row) * range.columns,
                      size_t(rows) * range.columns, residual});
  };
  // Adds a part of a vector; adds nothing if the model has no such vector.
  const auto part = [&](std::string name, const ParameterRange& range, int first, int count) {
    if (!range.empty()) places.push_back({std::move(name), {count}, range.offset + size_t(first), size_t(count)});
  };
  const auto vector = [&](std::string name, const ParameterRange& range) { part(std::move(name), range, 0, range.columns); };
  const int queries = architecture.query_width(), keys = architecture.key_value_width(), ffn = architecture.intermediate_size;
  matrix("model.embed_tokens.weight", layout.embedding, 0, layout.embedding.rows);
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerParameters& layer = layout.layers[i];
    const std::string prefix = "model.layers." + std::to_string(i) + ".", attention = prefix + "self_attn.";
    vector(prefix + "input_layernorm.weight", layer.input_norm);
    matrix(attention + "q_proj.weight", layer.qkv, 0, queries);
    matrix(attention + "k_proj.weight", layer.qkv, queries, keys);
    matrix(attention + "v_proj.weight", layer.qkv, queries + keys, keys);
    part(attention + "q_proj.bias", layer.qkv_bias, 0, queries);
    part(attention + "k_proj.bias", layer.qkv_bias, queries, keys);
    part(attention + "v_proj.bias", layer.qkv_bias, queries + keys, keys);
    vector(attention + "q_norm.weight", layer.query_norm);
    vector(attention + "k_norm.weight", layer.key_norm);
    matrix(attention + "o_proj.weight", layer.output, 0, layer.output.rows, true);
    vector(prefix + "post_attention_layernorm.weight", layer.post_norm);
    matrix(prefix + "mlp.gate_proj.weight", layer.gate_up, 0, ffn);
    matrix(prefix + "mlp.up_proj.weight", layer.gate_up, ffn, ffn);
    matrix(prefix + "mlp.down_proj.weight", layer.down, 0, layer.down.rows, true);
  }
  vector("model.norm.weight", layout.final_norm);
  if (!architecture.tie_word_embeddings) matrix("lm_head.weight", layout.head, 0, layout.head.rows);
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return places;
}

}  // namespace longhaul
