// The forward half of ForestPass: embedding, layers, final norm, all split over tiles of rows.
#include <algorithm>
#include <cstring>

#include "train/forest/forest_pass_state.h"

namespace longhaul {

namespace {

/// Rows of one unit of work: enough units for all threads, and few enough rows for a core's cache.
int tile_rows(int rows, int threads) {
  constexpr int kernel_rows = 12, least = 48, most = 192;
  const int share = (rows + 4 * threads - 1) / (4 * threads);
  return std::clamp((share + kernel_rows - 1) / kernel_rows * kernel_rows, least, most);
}

/// Where to write scale·(x·Aᵀ) of `count` rows: in the layer's buffer if its backward pass reads it, otherwise in the thread's own space.
float* down_rows(const Linear& linear, AlignedBuffer& buffer, int first, int count, bool saving) {
  const size_t width = size_t(adapter_width(linear));
  if (width == 0) return nullptr;
  return saving ? buffer.data() + size_t(first) * width : room(tile_space().adapter_down, size_t(count) * width);
}

void make_room(AdapterBuffers& buffers, const LayerLinears& linears, size_t rows) {
  room(buffers.qkv, rows * size_t(adapter_width(linears.qkv)));
  room(buffers.output, rows * size_t(adapter_width(linears.output)));
  room(buffers.gate_up, rows * size_t(adapter_width(linears.gate_up)));
  room(buffers.down, rows * size_t(adapter_width(linears.down)));
}

}  // namespace

template <class Work>
void ForestPass::State::each_tile(int rows, Work&& work_on) {
  const int tile = tile_rows(rows, pool.threads());
  pool.parallel_for(size_t(rows + tile - 1) / tile,
                    [&](size_t t) { work_on(int(t) * tile, std::min(tile, rows - int(t) * tile)); });
}

void ForestPass::State::prepare_forward(const PassRange& pass) {
  const Architecture& arch = architecture();
  const RowWidths widths(arch, policy->adapters() ? &policy->adapters()->settings() : nullptr);
  const size_t rows = rounded_rows(plan.most_rows()), count = size_t(arch.num_hidden_layers);
  const auto prepare = [&](LayerActivations& act, bool saving) {
    room(act.qkv, rows * widths.qkv);
    room(act.attention, rows * widths.query);
    if (!saving) return;
    room(act.heads_saved, rows * widths.saved);
    room(act.heads_inverse, rows * widths.inverse);
    room(act.log_sums, rows * widths.heads);
    room(act.middle, rows * widths.hidden);
    room(act.gate_up, rows * 2 * widths.ffn);
    make_room(act.adapter_down, linears[0], rows);
  };
  inputs.resize(std::max(inputs.size(), keep == Keep::nothing ? size_t(1) : count), AlignedBuffer(BufferMemory::mapped));
  for (size_t i = 0; i < (keep == Keep::nothing ? 1 : count); ++i) room(inputs[i], rows * widths.hidden);
  const size_t kept_layers = keep == Keep::everything ? count : 1;
  layers.resize(std::max(layers.size(), kept_layers));
  for (size_t i = 0; i < kept_layers; ++i) prepare(layers[i], keep != Keep::nothing);
  room(last_hidden, rows * widths.hidden);
  room(final_normed, rows * widths.hidden);
  room(final_inverse, rows);
  if (several_passes() && pass.first_row == 0) {
    kept_keys_values.resize(count, AlignedBuffer(BufferMemory::mapped));
    for (AlignedBuffer& buffer : kept_keys_values) room(buffer, rounded_rows(forest->rows()) * widths.keys_values);
  }
}

void ForestPass::State::forward(const PassRange& pass, Keep what, bool store_keys) {
  keep = what;
  prepare_forward(pass);
  const int count_layers = architecture().num_hidden_layers;
  each_tile(pass.rows, [&](int first, int count) {
    embed(pass, first, count);
    project(pass, 0, first, count, kept(0), store_keys);
  });
  for (int layer = 0; layer < count_layers; ++layer) {
    attend(pass, layer, kept(layer));
    each_tile(outputs(pass, layer), [&](int first, int count) {
      transform(pass, layer, first, count, kept(layer), true);
      if (!last(layer)) project(pass, layer + 1, first, count, kept(layer + 1), store_keys);
    });
    tell(advanced);
  }
}

void ForestPass::State::recompute(const PassRange& pass, int layer) {
  each_tile(pass.rows, [&](int first, int count) { project(pass, layer, first, count, true, false); });
  attend(pass, layer, true);
  each_tile(outputs(pass, layer), [&](int first, int count) { transform(pass, layer, first, count, true, false); });
}

void ForestPass::State::embed(const PassRange& pass, int first, int count) {
  const float* table = weights().at(policy->layout().embedding);
  const size_t width = size_t(architecture().hidden_size);
  for (int i = first; i < first + count; ++i)
    std::memcpy(input(0) + size_t(i) * width, table + size_t(forest->tokens[pass.first_row + i]) * width, width * sizeof(float));
}

/// Computes queries, keys and values of a layer.
void ForestPass::State::project(const PassRange& pass, int layer, int first, int count, bool saving, bool store_keys) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const Linear& linear = linears[layer].qkv;
  LayerActivations& act = at(layer);
  const int width = arch.hidden_size, heads = arch.num_attention_heads, kv_heads = arch.num_key_value_heads,
            head_dim = arch.head_dim;
  const size_t ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width());
  float* normed = room(tile_space().normed, size_t(count) * width);
  op->rms_norm(input(layer) + size_t(first) * width, weights().at(parameters.input_norm), eps(), normed, nullptr, count, width);
  float* qkv = act.qkv.data() + size_t(first) * ld;
  apply(*op, linear, normed, size_t(width), qkv, ld, count, false,
        down_rows(linear, act.adapter_down.qkv, first, count, saving));

  const bool norms = arch.has_head_norms();
  const size_t ld_saved = query_width + size_t(arch.key_value_width()), ld_inverse = size_t(heads) + kv_heads;
  float* saved = norms && saving ? act.heads_saved.data() + first * ld_saved : nullptr;
  float* inverse = norms && saving ? act.heads_inverse.data() + first * ld_inverse : nullptr;
  const int32_t* positions = forest->positions.data() + pass.first_row + first;
  op->head_norm_rope(qkv, ld, norms ? weights().at(parameters.query_norm) : nullptr, eps(), positions, weights().rope().cos(),
                     weights().rope().sin(), saved, ld_saved, inverse, ld_inverse, count, heads, head_dim);
  op->head_norm_rope(qkv + query_width, ld, norms ? weights().at(parameters.key_norm) : nullptr, eps(), positions,
                     weights().rope().cos(), weights().rope().sin(), saved ? saved + query_width : nullptr, ld_saved,
                     inverse ? inverse + heads : nullptr, ld_inverse, count, kv_heads, head_dim);
  if (!store_keys || !several_passes()) return;
  const size_t kept_width = size_t(2) * arch.key_value_width();
  float* kept_rows = kept_keys_values[layer].data() + size_t(pass.first_row + first) * kept_width;
  for (int i = 0; i < count; ++i)
    std::memcpy(kept_rows + size_t(i) * kept_width, qkv + size_t(i) * ld + query_width, kept_width * sizeof(float));
}

ops::ChainAttention ForestPass::State::chain_attention(const PassRange& pass, int layer, int index, int kv_head) {
  const Architecture& arch = architecture();
  const Segment& segment = plan.segments[index];
  LayerActivations& act = at(layer);
  std::vector<int32_t>& chain = tile_space().chain;
  plan.chain(index, chain);
  ops::ChainAttention args{};
  args.qkv = act.qkv.data();
  args.ld_qkv = size_t(arch.qkv_width());
  // With a single pass, the keys and values of all rows lie beside their queries.
  args.keys_values = several_passes() ? kept_keys_values[layer].data() : act.qkv.data() + arch.query_width();
  args.ld_keys_values = several_passes() ? size_t(2) * arch.key_value_width() : args.ld_qkv;
  args.chain_rows = chain.data();
  args.chain_length = int(chain.size());
  if (last(layer)) {
    args.query_places = plan.output_positions.data() + segment.first_output;
    args.query_rows = plan.output_pass_rows.data() + segment.first_output;
    args.query_outputs = plan.counting.data() + (segment.first_output - pass.first_output);
    args.queries = segment.outputs;
  } else {
    args.query_places = forest->positions.data() + segment.first_row;
    args.query_rows = plan.counting.data() + (segment.first_row - pass.first_row);
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

void ForestPass::State::attend(const PassRange& pass, int layer, bool saving) {
  const size_t kv_heads = size_t(architecture().num_key_value_heads);
  pool.parallel_for(size_t(pass.segments) * kv_heads, [&](size_t item) {
    const int segment = plan.by_work[size_t(pass.first_segment) + item / kv_heads];
    if (last(layer) && plan.segments[segment].outputs == 0) return;
    ops::ChainAttention args = chain_attention(pass, layer, segment, int(item % kv_heads));
    if (!saving) args.log_sums = nullptr;
    op->chain_attention(args);
  });
}

/// Computes the layer's output from its attention; in the last layer, only for outputs, and with the final norm. Without `output_wanted`,
/// computes only what the backward pass reads.
void ForestPass::State::transform(const PassRange& pass, int layer, int first, int count, bool saving, bool output_wanted) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const LayerLinears& linear = linears[layer];
  LayerActivations& act = at(layer);
  TileSpace& tile = tile_space();
  const int width = arch.hidden_size, ffn = arch.intermediate_size;
  const size_t query_width = size_t(arch.query_width()), floats = size_t(count) * width, begin = size_t(first) * width;

  float* middle = saving ? act.middle.data() + begin : room(tile.middle, floats);
  if (last(layer)) {
    const int32_t* rows = plan.output_pass_rows.data() + pass.first_output + first;
    for (int i = 0; i < count; ++i)
      std::memcpy(middle + size_t(i) * width, input(layer) + size_t(rows[i]) * width, size_t(width) * sizeof(float));
  } else {
    std::memcpy(middle, input(layer) + begin, floats * sizeof(float));
  }
  apply(*op, linear.output, act.attention.data() + size_t(first) * query_width, query_width, middle, size_t(width), count, true,
        down_rows(linear.output, act.adapter_down.output, first, count, saving));
  float* normed = room(tile.normed, floats);
  op->rms_norm(middle, weights().at(parameters.post_norm), eps(), normed, nullptr, count, width);
  float* gate_up =
      saving ? act.gate_up.data() + size_t(first) * 2 * ffn : room(tile.gate_up, size_t(count) * 2 * ffn);
  apply(*op, linear.gate_up, normed, size_t(width), gate_up, size_t(2) * ffn, count, false,
        down_rows(linear.gate_up, act.adapter_down.gate_up, first, count, saving));
  if (!output_wanted && adapter_width(linear.down) == 0) return;

  float* activated = room(tile.activated, size_t(count) * ffn);
  op->swiglu(gate_up, activated, count, ffn);
  float* output = !output_wanted ? room(tile.output, floats) : last(layer) ? last_hidden.data() + begin : input(layer + 1) + begin;
  std::memcpy(output, middle, floats * sizeof(float));
  apply(*op, linear.down, activated, size_t(ffn), output, size_t(width), count, true,
        down_rows(linear.down, act.adapter_down.down, first, count, saving));
  if (output_wanted && last(layer))
    op->rms_norm(output, weights().at(policy->layout().final_norm), eps(), final_normed.data() + begin, final_inverse.data() + first,
                 count, width);
}

}  // namespace longhaul
