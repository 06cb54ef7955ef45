#include "cuda/host/device_extension.h"

#include <algorithm>
#include <numeric>

#include "pass/layer.h"

namespace longhaul::cuda {

void DeviceExtension::run(const Policy& policy, const DeviceCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
                          std::span<Drawn> drawn) {
  if (feeds.empty()) return;
  device_.hold(policy);
  const Architecture& arch = device_.architecture();
  const size_t width = size_t(arch.hidden_size);
  const int layers = arch.num_hidden_layers;
  put_rows(feeds);
  device_.gather({device_.embedding(), width}, tokens_.data(), {hidden_.rows(rows_, width), width}, rows_, arch.hidden_size);
  for (int layer = 0; layer < layers; ++layer) {
    project(cache, layer);
    if (layer + 1 < layers) {
      attend_and_transform(cache, layer, all_);
      continue;
    }
    // After the keys and values of the last layer, only rows with wanted logits matter.
    if (wanted_ == 0) return;
    device_.gather({hidden_.data(), width}, last_.rows.data(), {kept_.rows(wanted_, width), width}, wanted_, arch.hidden_size);
    hidden_.swap(kept_);
    attend_and_transform(cache, layer, last_);
  }
  device_.rms_norm(hidden_.data(), device_.layout().final_norm, device_.scratch().normed.rows(wanted_, width), nullptr, wanted_);
  draw(draws, drawn);
}

/// Lays out the feeds' rows one feed after another, and what attends to what.
void DeviceExtension::put_rows(std::span<const Feed> feeds) {
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
  const int group = device_.architecture().queries_per_key_value();
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
void DeviceExtension::project(const DeviceCache& cache, int layer) {
  const Architecture& arch = device_.architecture();
  const size_t ld = size_t(arch.qkv_width());
  float* qkv = qkv_.rows(rows_, ld);
  project_rows(device_, layer, {0, rows_}, hidden_.data(), qkv, nullptr, applied_by(device_));
  rotate_rows(device_, layer, qkv, positions_.data(), rows_, nullptr, nullptr);
  store_keys_values({cache.blocks(), layer, qkv, ld, rows_, stores_.data(), arch.num_attention_heads}, stream_);
}

void DeviceExtension::attend_and_transform(const DeviceCache& cache, int layer, Queries& queries) {
  const Architecture& arch = device_.architecture();
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
  attend.out = attention_.rows(queries.count, size_t(arch.query_width()));
  attention(attend, stream_);
  float *hidden = hidden_.data(), *gate_up = device_.scratch().gate_up.rows(queries.count, size_t(2) * size_t(arch.intermediate_size));
  transform_rows(device_, layer, {0, queries.count}, attention_.data(), hidden, gate_up, hidden, nullptr, applied_by(device_));
}

void DeviceExtension::draw(std::span<const DrawRequest> draws, std::span<Drawn> drawn) {
  const Architecture& arch = device_.architecture();
  const size_t width = size_t(arch.hidden_size), vocab = size_t(arch.vocab_size);
  const int most = most_logit_rows(arch.vocab_size);
  for (int first = 0; first < wanted_; first += most) {
    const int rows = std::min(most, wanted_ - first);
    float* logits = logits_.room(size_t(rows) * vocab);
    device_.logits(device_.scratch().normed.row(first, width), logits, rows);
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
