#include "cuda/host/device_extension.h"

#include <algorithm>
#include <numeric>

#include "cuda/kernels/products.h"

namespace longhaul::cuda {

void DeviceExtension::run(const DeviceModel& model, const DeviceCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
                          std::span<Drawn> drawn) {
  if (feeds.empty()) return;
  const Architecture& arch = model.architecture();
  const size_t width = size_t(arch.hidden_size);
  const int layers = arch.num_hidden_layers;
  put_rows(model, feeds);
  gather_rows({model.at(model.layout().embedding), width}, tokens_.data(), {hidden_.room(size_t(rows_) * width), width}, rows_,
              arch.hidden_size, stream_);
  for (int layer = 0; layer < layers; ++layer) {
    project(model, cache, layer);
    if (layer + 1 < layers) {
      attend_and_transform(model, cache, layer, all_);
      continue;
    }
    // After the keys and values of the last layer, only rows with wanted logits matter.
    if (wanted_ == 0) return;
    gather_rows({hidden_.data(), width}, last_.rows.data(), {kept_.room(size_t(wanted_) * width), width}, wanted_, arch.hidden_size, stream_);
    hidden_.swap(kept_);
    attend_and_transform(model, cache, layer, last_);
  }
  model.rms_norm(hidden_.data(), model.layout().final_norm, normed_.room(size_t(wanted_) * width), nullptr, wanted_, stream_);
  draw(model, draws, drawn);
}

/// Lays out the feeds' rows one feed after another, and what attends to what.
void DeviceExtension::put_rows(const DeviceModel& model, std::span<const Feed> feeds) {
  std::vector<int32_t> tokens, positions, stores, entries, rows, wanted_rows, wanted_places;
  std::vector<QuerySpan> spans, wanted_spans;
  for (const Feed& feed : feeds) {
    const int first = int(tokens.size()), count = int(feed.tokens.size()), past = int(entries.size());
    const size_t used = size_t(feed.position + count + block_positions - 1) / block_positions;
    entries.insert(entries.end(), feed.blocks.begin(), feed.blocks.begin() + std::ptrdiff_t(used));
    tokens.insert(tokens.end(), feed.tokens.begin(), feed.tokens.end());
    for (int position = feed.position; position < feed.position + count; ++position) {
      positions.push_back(position);
      stores.push_back(feed.blocks[size_t(position / block_positions)] * block_positions + position % block_positions);
    }
    spans.push_back({first, count, past});
    if (!feed.want_logits) continue;
    wanted_spans.push_back({int(wanted_rows.size()), 1, past});
    wanted_rows.push_back(first + count - 1);
    wanted_places.push_back(feed.position + count - 1);
  }
  rows_ = int(tokens.size());
  wanted_ = int(wanted_rows.size());
  rows.resize(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  tokens_.put(tokens, stream_);
  positions_.put(positions, stream_);
  stores_.put(stores, stream_);
  entries_.put(entries, stream_);
  const int group = model.architecture().queries_per_key_value();
  put_queries(all_, spans, rows, positions, group);
  put_queries(last_, wanted_spans, wanted_rows, wanted_places, group);
}

void DeviceExtension::put_queries(Queries& queries, const std::vector<QuerySpan>& spans, const std::vector<int32_t>& rows,
                                  const std::vector<int32_t>& places, int group) {
  queries.count = int(rows.size());
  if (queries.count == 0) return;
  // Rows that share a past come from prefill; a decoding feed has one.
  queries.tile_rows = rows.size() > 4 * spans.size() ? many_tile_rows : few_tile_rows;
  const std::vector<AttentionTile> tiles = attention_tiles(spans, group, queries.tile_rows);
  queries.tiles = int(tiles.size());
  queries.tile_room.put(tiles, stream_);
  queries.rows.put(rows, stream_);
  queries.places.put(places, stream_);
}

/// Computes queries, keys and values of a layer; keys and values go to the cache.
void DeviceExtension::project(const DeviceModel& model, const DeviceCache& cache, int layer) {
  const Architecture& arch = model.architecture();
  const LayerParameters& parameters = model.layout().layers[size_t(layer)];
  const DeviceLinear& linear = model.linears(layer).qkv;
  const size_t width = size_t(arch.hidden_size), ld = size_t(arch.qkv_width()), rows = size_t(rows_);
  const float eps = float(arch.rms_norm_eps);
  float* normed = normed_.room(rows * width);
  model.rms_norm(hidden_.data(), parameters.input_norm, normed, nullptr, rows_, stream_);
  float* qkv = qkv_.room(rows * ld);
  apply(linear, {normed, width}, {qkv, ld}, rows_, false, adapter_.room(rows * size_t(linear.adapter_width())), stream_);
  head_norm_rope({model.heads(qkv, parameters.query_norm, positions_.data(), rows_, arch.num_attention_heads), eps, nullptr, 0, nullptr, 0},
                 stream_);
  head_norm_rope({model.heads(qkv + arch.query_width(), parameters.key_norm, positions_.data(), rows_, arch.num_key_value_heads), eps, nullptr,
                  0, nullptr, 0},
                 stream_);
  store_keys_values({cache.blocks(), layer, qkv, ld, rows_, stores_.data(), arch.num_attention_heads}, stream_);
}

void DeviceExtension::attend_and_transform(const DeviceModel& model, const DeviceCache& cache, int layer, Queries& queries) {
  const Architecture& arch = model.architecture();
  const DeviceLinears& linears = model.linears(layer);
  const size_t width = size_t(arch.hidden_size), ffn = size_t(arch.intermediate_size), query_width = size_t(arch.query_width()),
               count = size_t(queries.count);
  Attention attend{};
  attend.qkv = qkv_.data();
  attend.ld_qkv = size_t(arch.qkv_width());
  attend.query_rows = queries.rows.data();
  attend.query_places = queries.places.data();
  attend.past = cached_past(cache.blocks(), layer, entries_.data());
  attend.tiles = queries.tile_room.data();
  attend.tile_count = queries.tiles;
  attend.tile_rows = queries.tile_rows;
  attend.heads = arch.num_attention_heads;
  attend.kv_heads = arch.num_key_value_heads;
  attend.head_dim = arch.head_dim;
  attend.out = attention_.room(count * query_width);
  attention(attend, stream_);
  const auto adapter = [&](const DeviceLinear& linear) { return adapter_.room(count * size_t(linear.adapter_width())); };
  float *hidden = hidden_.data(), *normed = normed_.room(count * width), *gate_up = gate_up_.room(count * 2 * ffn),
        *activated = activated_.room(count * ffn);
  apply(linears.output, {attention_.data(), query_width}, {hidden, width}, queries.count, true, adapter(linears.output), stream_);
  model.rms_norm(hidden, model.layout().layers[size_t(layer)].post_norm, normed, nullptr, queries.count, stream_);
  apply(linears.gate_up, {normed, width}, {gate_up, 2 * ffn}, queries.count, false, adapter(linears.gate_up), stream_);
  swiglu(gate_up, activated, queries.count, arch.intermediate_size, stream_);
  apply(linears.down, {activated, ffn}, {hidden, width}, queries.count, true, adapter(linears.down), stream_);
}

void DeviceExtension::draw(const DeviceModel& model, std::span<const DrawRequest> draws, std::span<Drawn> drawn) {
  const Architecture& arch = model.architecture();
  const ParameterRange& head = model.layout().head;
  const size_t width = size_t(arch.hidden_size), vocab = size_t(arch.vocab_size);
  const int most = most_logit_rows(arch.vocab_size);
  for (int first = 0; first < wanted_; first += most) {
    const int rows = std::min(most, wanted_ - first);
    float* logits = logits_.room(size_t(rows) * vocab);
    product({ProductLayout::forward, normed_.data() + size_t(first) * width, width, model.at(head), width, logits, vocab, rows, arch.vocab_size,
             arch.hidden_size, false},
            stream_);
    std::vector<RowDraw> row_draws;
    for (const DrawRequest& request : draws.subspan(size_t(first), size_t(rows)))
      row_draws.push_back({1.0f / request.temperature, request.uniform});
    draw_rows({logits, rows, arch.vocab_size, row_draws_.put(row_draws, stream_), drawn_.room(size_t(rows))}, stream_);
    std::vector<DrawnToken> tokens(static_cast<size_t>(rows));
    device_copy(tokens.data(), drawn_.data(), tokens.size(), stream_);
    std::vector<float> row;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const DrawRequest& request = draws[size_t(first) + i];
      Drawn& one = drawn[size_t(first) + i];
      one = {tokens[i].token, tokens[i].logprob};
      if (request.top_p >= 1 && request.top_k <= 0) continue;
      // A truncated draw sorts a part of the row, which is the host's work.
      row.resize(vocab);
      device_copy(row.data(), logits + i * vocab, vocab, stream_);
      one = longhaul::draw(row.data(), arch.vocab_size, request);
    }
  }
}

}  // namespace longhaul::cuda
