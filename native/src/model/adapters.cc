#include "model/adapters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "base/philox.h"

namespace longhaul {

namespace {

constexpr int most_rank = 1024;

struct TargetShape {
  LoraTarget target;
  int outputs;
  int first_output;  // column in its fused layer
};

/// The adapted targets of a fused layer, in order of their columns.
std::vector<TargetShape> adapted(const LoraSettings& settings, std::initializer_list<TargetShape> all) {
  std::vector<TargetShape> chosen;
  for (const TargetShape& shape : all)
    if (std::find(settings.targets.begin(), settings.targets.end(), shape.target) != settings.targets.end())
      chosen.push_back(shape);
  return chosen;
}

void list(const FusedAdapter& adapter, std::vector<ParameterRange>& out) {
  if (adapter.empty()) return;
  out.push_back(adapter.a);
  for (const AdapterPart& part : adapter.parts) out.push_back(part.b);
}

void pack(const FusedAdapter& adapter, const float* values, bool transposed, FusedAdapterPanels& out) {
  if (adapter.empty()) return;
  const auto pack_one = [&](const ParameterRange& range, ops::Panels& panels) {
    const float* from = values + range.offset;
    if (transposed) {
      ops::pack_transposed(from, range.rows, range.columns, panels);
    } else {
      ops::pack(from, size_t(range.columns), range.rows, range.columns, panels);
    }
  };
  pack_one(adapter.a, out.a);
  out.b.resize(adapter.parts.size());
  for (size_t p = 0; p < adapter.parts.size(); ++p) pack_one(adapter.parts[p].b, out.b[p]);
}

/// Packs A and B of every adapter: for the forward pass (x·Aᵀ, then ·Bᵀ) if `transposed`, otherwise for the backward
/// pass.
void pack_all(const AdapterLayout& layout, const float* values, bool transposed, std::vector<LayerAdapterPanels>& out,
              ThreadPool* pool) {
  out.resize(layout.layers.size());
  const auto pack_layer = [&](size_t i) {
    const LayerAdapters& from = layout.layers[i];
    LayerAdapterPanels& to = out[i];
    pack(from.qkv, values, transposed, to.qkv);
    pack(from.output, values, transposed, to.output);
    pack(from.gate_up, values, transposed, to.gate_up);
    pack(from.down, values, transposed, to.down);
  };
  if (pool) {
    pool->parallel_for(out.size(), pack_layer);
  } else {
    for (size_t i = 0; i < out.size(); ++i) pack_layer(i);
  }
}

}  // namespace

const char* name(LoraTarget target) {
  switch (target) {
    case LoraTarget::q_proj:
      return "q_proj";
    case LoraTarget::k_proj:
      return "k_proj";
    case LoraTarget::v_proj:
      return "v_proj";
    case LoraTarget::o_proj:
      return "o_proj";
    case LoraTarget::gate_proj:
      return "gate_proj";
    case LoraTarget::up_proj:
      return "up_proj";
    case LoraTarget::down_proj:
      break;
  }
  return "down_proj";
}

std::string module_path(LoraTarget target) {
  return std::string(target <= LoraTarget::o_proj ? "self_attn." : "mlp.") + name(target);
}

void validate(const LoraSettings& settings, const Architecture& architecture) {
  // hidden_size is a side of every adapted matrix, so no product B·A has a higher rank.
  const int most = std::min(most_rank, architecture.hidden_size);
  if (settings.rank < 1 || settings.rank > most)
    throw std::invalid_argument("lora.rank is " + std::to_string(settings.rank) + "; it must be between 1 and " +
                                std::to_string(most));
  if (!(settings.alpha > 0 && settings.alpha <= 1e6)) {
    char shown[32];
    std::snprintf(shown, sizeof shown, "%.12g", settings.alpha);
    throw std::invalid_argument(std::string("lora.alpha is ") + shown + "; it must be above 0 and at most 1e6");
  }
  if (settings.targets.empty())
    throw std::invalid_argument(
        "lora.targets is empty; it must name some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
  for (size_t i = 1; i < settings.targets.size(); ++i) {
    if (settings.targets[i - 1] == settings.targets[i])
      throw std::invalid_argument(std::string("lora.targets names ") + name(settings.targets[i]) + " twice");
    if (settings.targets[i - 1] > settings.targets[i])
      throw std::invalid_argument(std::string("lora.targets has ") + name(settings.targets[i]) + " after " +
                                  name(settings.targets[i - 1]) +
                                  "; the order is q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
  }
}

AdapterLayout::AdapterLayout(const Architecture& architecture, const LoraSettings& settings) {
  const int rank = settings.rank, hidden = architecture.hidden_size, ffn = architecture.intermediate_size,
            queries = architecture.query_width(), keys = architecture.key_value_width();
  const auto place = [this](int rows, int columns) {
    const ParameterRange range{total, rows, columns, true};
    total += range.size();
    return range;
  };
  const auto fused = [&](int inputs, const std::vector<TargetShape>& shapes) {
    FusedAdapter adapter;
    if (shapes.empty()) return adapter;
    adapter.a = place(int(shapes.size()) * rank, inputs);
    for (const TargetShape& shape : shapes)
      adapter.parts.push_back({shape.target, place(shape.outputs, rank), shape.first_output});
    return adapter;
  };
  for (int i = 0; i < architecture.num_hidden_layers; ++i) {
    LayerAdapters layer;
    layer.qkv = fused(hidden, adapted(settings, {{LoraTarget::q_proj, queries, 0},
                                                 {LoraTarget::k_proj, keys, queries},
                                                 {LoraTarget::v_proj, keys, queries + keys}}));
    layer.output = fused(queries, adapted(settings, {{LoraTarget::o_proj, hidden, 0}}));
    layer.gate_up = fused(hidden, adapted(settings, {{LoraTarget::gate_proj, ffn, 0}, {LoraTarget::up_proj, ffn, ffn}}));
    layer.down = fused(ffn, adapted(settings, {{LoraTarget::down_proj, hidden, 0}}));
    layers.push_back(std::move(layer));
  }
}

std::vector<ParameterRange> AdapterLayout::ranges() const {
  std::vector<ParameterRange> all;
  for (const LayerAdapters& layer : layers)
    for (const FusedAdapter* adapter : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) list(*adapter, all);
  return all;
}

std::vector<TensorPlace> tensor_places(const LoraSettings& settings, const AdapterLayout& layout) {
  std::vector<TensorPlace> places;
  const size_t rank = size_t(settings.rank);
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerAdapters& layer = layout.layers[i];
    for (const FusedAdapter* adapter : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      for (size_t p = 0; p < adapter->parts.size(); ++p) {
        const AdapterPart& part = adapter->parts[p];
        const std::string module = "model.layers." + std::to_string(i) + "." + module_path(part.target);
        const size_t inputs = size_t(adapter->a.columns);
        places.push_back({module + ".lora_A.weight", {settings.rank, adapter->a.columns},
                          adapter->a.offset + p * rank * inputs, rank * inputs});
        places.push_back({module + ".lora_B.weight", {part.b.rows, part.b.columns}, part.b.offset, part.b.size()});
      }
  }
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return places;
}

Adapters::Adapters(const Architecture& architecture, const LoraSettings& settings) : settings_(settings) {
  validate(settings, architecture);
  layout_ = AdapterLayout(architecture, settings);
  values_.resize(layout_.total);
}

void Adapters::initialize(uint64_t seed) {
  const std::vector<TensorPlace> places = tensor_places(settings_, layout_);
  for (size_t t = 0; t < places.size(); ++t) {
    float* values = values_.data() + places[t].offset;
    if (places[t].name.ends_with(".lora_B.weight")) {
      std::fill_n(values, places[t].size, 0.0f);
      continue;
    }
    const double bound = 1 / std::sqrt(double(places[t].shape[1]));
    PhiloxBlock bits{};
    for (size_t i = 0; i < places[t].size; ++i) {
      // The counter's last word makes these numbers differ from the numbers for a model's weights with the same seed.
      if (i % 4 == 0)
        bits = philox4x32_10({uint32_t(i / 4), uint32_t(i / 4 >> 32), uint32_t(t), 1},
                             philox_key(seed, PhiloxDomain::initial_weights));
      values[i] = float(((bits[i % 4] + 0.5) * 0x1p-31 - 1) * bound);
    }
  }
  changed();
}

void Adapters::pack_forward(ThreadPool* pool, ops::Arithmetic arithmetic) const {
  if (arithmetic == ops::Arithmetic::bf16) return rounded_.make(*this, pool);
  if (packed_) return;
  pack_all(layout_, values_.data(), true, forward_, pool);
  packed_ = true;
}

const std::vector<LayerAdapterPanels>& Adapters::forward_panels() const {
  if (!packed_) throw std::logic_error("adapters: their panels are not packed");
  return forward_;
}

void Adapters::pack_backward(std::vector<LayerAdapterPanels>& out, ThreadPool* pool) const {
  pack_all(layout_, values_.data(), false, out, pool);
}

}  // namespace longhaul
