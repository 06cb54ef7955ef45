#include "model/policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/exact_math.h"
#include "base/philox.h"

namespace longhaul {

namespace {

/// A Hugging Face tensor inside the flat parameter array.
struct TensorPlace {
  std::string name;
  std::vector<int64_t> shape;
  size_t offset = 0;
  size_t size = 0;
  /// o_proj and down_proj write into the residual stream: their initial weights shrink with depth.
  bool residual_output = false;
};

std::vector<TensorPlace> tensor_places(const Architecture& architecture, const ParameterLayout& layout) {
  std::vector<TensorPlace> places;
  const auto matrix = [&](std::string name, const ParameterRange& range, int first_row, int rows, bool residual = false) {
    places.push_back({std::move(name), {rows, range.columns}, range.offset + size_t(first_row) * range.columns,
                      size_t(rows) * range.columns, residual});
  };
  const auto norm = [&](std::string name, const ParameterRange& range) {
    places.push_back({std::move(name), {range.columns}, range.offset, range.size()});
  };
  const int queries = architecture.query_width(), keys = architecture.key_value_width(), ffn = architecture.intermediate_size;
  matrix("model.embed_tokens.weight", layout.embedding, 0, layout.embedding.rows);
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerParameters& layer = layout.layers[i];
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    norm(prefix + "input_layernorm.weight", layer.input_norm);
    matrix(prefix + "self_attn.q_proj.weight", layer.qkv, 0, queries);
    matrix(prefix + "self_attn.k_proj.weight", layer.qkv, queries, keys);
    matrix(prefix + "self_attn.v_proj.weight", layer.qkv, queries + keys, keys);
    norm(prefix + "self_attn.q_norm.weight", layer.query_norm);
    norm(prefix + "self_attn.k_norm.weight", layer.key_norm);
    matrix(prefix + "self_attn.o_proj.weight", layer.output, 0, layer.output.rows, true);
    norm(prefix + "post_attention_layernorm.weight", layer.post_norm);
    matrix(prefix + "mlp.gate_proj.weight", layer.gate_up, 0, ffn);
    matrix(prefix + "mlp.up_proj.weight", layer.gate_up, ffn, ffn);
    matrix(prefix + "mlp.down_proj.weight", layer.down, 0, layer.down.rows, true);
  }
  norm("model.norm.weight", layout.final_norm);
  if (!architecture.tie_word_embeddings) matrix("lm_head.weight", layout.head, 0, layout.head.rows);
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return places;
}

template <class T>
std::vector<NamedTensor<T>> list_tensors(const std::vector<TensorPlace>& places, std::span<T> weights, std::span<T> first,
                                         std::span<T> second) {
  std::vector<NamedTensor<T>> tensors;
  for (const TensorPlace& place : places) {
    tensors.push_back({"adam.m." + place.name, place.shape, first.subspan(place.offset, place.size)});
    tensors.push_back({"adam.v." + place.name, place.shape, second.subspan(place.offset, place.size)});
    tensors.push_back({place.name, place.shape, weights.subspan(place.offset, place.size)});
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return tensors;
}

/// Four standard normals by Box–Muller.
void draw_normals(uint64_t seed, uint32_t tensor, uint64_t block, double normals[4]) {
  const PhiloxBlock bits = philox4x32_10({uint32_t(block), uint32_t(block >> 32), tensor, 0},
                                         philox_key(seed, PhiloxDomain::initial_weights));
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2 * exact::log((bits[2 * pair] + 0.5) * 0x1p-32));
    const exact::SineCosine angle = exact::sine_cosine((bits[2 * pair + 1] + 0.5) * 0x1p-32 * 6.283185307179586477);
    normals[2 * pair] = radius * angle.cosine;
    normals[2 * pair + 1] = radius * angle.sine;
  }
}

/// Calls pack(range, panels) for every matrix, on the pool where there is one.
template <class Pack>
void pack_all(const ParameterLayout& layout, PolicyPanels& panels, ThreadPool* pool, Pack&& pack) {
  panels.layers.resize(layout.layers.size());
  std::vector<std::pair<ParameterRange, ops::Panels*>> matrices{{layout.head, &panels.head}};
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerParameters& from = layout.layers[i];
    LayerPanels& to = panels.layers[i];
    matrices.insert(matrices.end(), {{from.qkv, &to.qkv}, {from.output, &to.output}, {from.gate_up, &to.gate_up},
                                     {from.down, &to.down}});
  }
  const auto pack_one = [&](size_t index) { pack(matrices[index].first, *matrices[index].second); };
  if (pool) {
    pool->parallel_for(matrices.size(), pack_one);
  } else {
    for (size_t i = 0; i < matrices.size(); ++i) pack_one(i);
  }
}

}  // namespace

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
    layer.query_norm = place(1, head, false);
    layer.key_norm = place(1, head, false);
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
    all.insert(all.end(), {layer.input_norm, layer.qkv, layer.query_norm, layer.key_norm, layer.output, layer.post_norm,
                           layer.gate_up, layer.down});
  all.push_back(final_norm);
  if (head.offset != embedding.offset) all.push_back(head);
  return all;
}

Policy::Policy(const Architecture& architecture) : architecture_(architecture) {
  validate(architecture);
  layout_ = ParameterLayout(architecture);
  weights_.resize(layout_.total);
  first_moments_.resize(layout_.total);
  second_moments_.resize(layout_.total);

  // As transformers does: inverse frequencies and angles rounded to fp32 before the cosine.
  const int half = architecture.head_dim / 2;
  rope_cos_.resize(size_t(architecture.max_position_embeddings) * half);
  rope_sin_.resize(rope_cos_.size());
  const double log_theta = exact::log(architecture.rope_theta);
  for (int i = 0; i < half; ++i) {
    const float inverse_frequency = float(exact::exp(-2.0 * i / architecture.head_dim * log_theta));
    for (int position = 0; position < architecture.max_position_embeddings; ++position) {
      const exact::SineCosine angle = exact::sine_cosine(double(float(position) * inverse_frequency));
      rope_cos_.data()[size_t(position) * half + i] = float(angle.cosine);
      rope_sin_.data()[size_t(position) * half + i] = float(angle.sine);
    }
  }
}

void Policy::initialize(double initializer_range, uint64_t seed) {
  if (!(initializer_range > 0 && initializer_range < 10))
    throw std::invalid_argument("initializer_range is " + std::to_string(initializer_range) +
                                "; it must be between 0 and 10");
  const std::vector<TensorPlace> places = tensor_places(architecture_, layout_);
  for (size_t t = 0; t < places.size(); ++t) {
    float* values = weights_.data() + places[t].offset;
    if (places[t].shape.size() == 1) {
      std::fill_n(values, places[t].size, 1.0f);
      continue;
    }
    const double deviation = places[t].residual_output
                                 ? initializer_range / std::sqrt(2.0 * architecture_.num_hidden_layers)
                                 : initializer_range;
    double normals[4];
    for (size_t i = 0; i < places[t].size; ++i) {
      if (i % 4 == 0) draw_normals(seed, uint32_t(t), i / 4, normals);
      values[i] = float(normals[i % 4] * deviation);
    }
  }
  std::fill_n(first_moments_.data(), layout_.total, 0.0f);
  std::fill_n(second_moments_.data(), layout_.total, 0.0f);
  optimizer_steps = 0;
  weights_changed();
}

std::vector<NamedTensor<float>> Policy::tensors() {
  return list_tensors<float>(tensor_places(architecture_, layout_), weights(), first_moments(), second_moments());
}

std::vector<NamedTensor<const float>> Policy::tensors() const {
  return list_tensors<const float>(tensor_places(architecture_, layout_), weights(), first_moments(), second_moments());
}

void Policy::weights_changed(ThreadPool* pool) {
  pack_all(layout_, forward_, pool, [this](const ParameterRange& range, ops::Panels& panels) {
    ops::pack_transposed(weight(range), range.rows, range.columns, panels);
  });
}

void Policy::pack_backward(PolicyPanels& out, ThreadPool* pool) const {
  pack_all(layout_, out, pool, [this](const ParameterRange& range, ops::Panels& panels) {
    ops::pack(weight(range), size_t(range.columns), range.rows, range.columns, panels);
  });
}

}  // namespace longhaul
