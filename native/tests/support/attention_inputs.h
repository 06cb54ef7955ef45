// Queries of a forest's nodes with their keys and values, for tests of attention: on the CPU and in the device's memory.
#pragma once

#include "cuda/kernels/attention/attention.h"
#include "support/device_checks.h"

namespace longhaul::test {

/// Numbers and width of heads.
struct Heads {
  int heads, kv_heads, head_dim;

  int group() const { return heads / kv_heads; }
  size_t query_width() const { return size_t(heads) * head_dim; }
  size_t kv_width() const { return size_t(2) * kv_heads * head_dim; }
  size_t qkv_width() const { return query_width() + kv_width(); }
  std::string name() const {
    return std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " + std::to_string(head_dim);
  }
};

/// A chain of rows, and places with a query.
struct Node {
  std::vector<int32_t> chain;   // rows of keys and values
  std::vector<int32_t> places;  // ascending
};

inline std::vector<int32_t> range(int first, int last, int step = 1) {
  std::vector<int32_t> values;
  for (int i = first; i < last; i += step) values.push_back(i);
  return values;
}

/// A node with `queries` queries at the end of a chain of `keys` rows in mixed order.
inline Node node_of(int keys, int queries, int step = 1) {
  Node node;
  for (int j = 0; j < keys; ++j) node.chain.push_back(keys - 1 - j);
  for (int j = 0; j + 1 < keys; j += 3) std::swap(node.chain[size_t(j)], node.chain[size_t(j + 1)]);
  node.places = range(keys - 1 - (queries - 1) * step, keys, step);
  return node;
}

/// Queries of several nodes, with keys and values.
struct AttentionInputs {
  Heads shape;
  std::vector<Node> nodes;
  size_t ld_qkv, ld_keys_values;
  std::vector<float> qkv, keys_values;
  std::vector<int32_t> places, query_rows, outputs, entries;
  std::vector<cuda::QuerySpan> spans;

  AttentionInputs(Heads heads, std::vector<Node> of, float spread = 4) : shape(heads), nodes(std::move(of)) {
    ld_qkv = shape.qkv_width();
    ld_keys_values = shape.kv_width() + 16;
    int rows = 0;
    for (const Node& node : nodes) {
      spans.push_back({int(places.size()), int(node.places.size()), int(entries.size())});
      places.insert(places.end(), node.places.begin(), node.places.end());
      entries.insert(entries.end(), node.chain.begin(), node.chain.end());
      for (const int32_t row : node.chain) rows = std::max(rows, row + 1);
    }
    const int queries = int(places.size());
    for (int i = 0; i < queries; ++i) {
      query_rows.push_back(queries - 1 - i);
      outputs.push_back(i);
    }
    qkv = with_zeros(scaled(random_values(size_t(queries) * ld_qkv, 1), spread));
    keys_values = with_zeros(scaled(random_values(size_t(rows) * ld_keys_values, 2), spread));
  }

  size_t out_size() const { return places.size() * shape.query_width(); }
  size_t log_sums_size() const { return places.size() * size_t(shape.heads); }

  ops::ChainAttention chain(size_t node, float* out, float* log_sums) const {
    const cuda::QuerySpan& span = spans[node];
    const int length = int(nodes[node].chain.size());
    return {qkv.data(),
            ld_qkv,
            keys_values.data(),
            ld_keys_values,
            entries.data() + span.past,
            length,
            places.data() + span.first_query,
            query_rows.data() + span.first_query,
            outputs.data() + span.first_query,
            span.queries,
            0,
            shape.kv_heads,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            out,
            log_sums};
  }

  /// Outputs, then log-sums, of the CPU.
  std::vector<float> expected() const {
    return reference(shape.name(), [&](const ops::Table& table) {
      std::vector<float> results(out_size() + log_sums_size());
      for (size_t n = 0; n < nodes.size(); ++n) table.chain_attention(chain(n, results.data(), results.data() + out_size()));
      return results;
    });
  }
};

/// The inputs in the device's memory.
struct AttentionOnDevice {
  const AttentionInputs& in;
  DeviceArray<float> qkv, keys_values;
  DeviceArray<int32_t> places, query_rows, entries;
  DeviceArray<cuda::AttentionTile> tiles;
  cuda::Attention args{};

  AttentionOnDevice(const AttentionInputs& inputs, int tile_rows)
      : in(inputs),
        qkv(in.qkv),
        keys_values(in.keys_values),
        places(in.places),
        query_rows(in.query_rows),
        entries(in.entries),
        tiles(cuda::attention_tiles(in.spans, in.shape.group(), tile_rows)) {
    args.qkv = qkv.data();
    args.ld_qkv = in.ld_qkv;
    args.query_rows = query_rows.data();
    args.query_places = places.data();
    args.past = cuda::chain_past(keys_values.data(), in.ld_keys_values, in.shape.kv_heads, in.shape.head_dim, entries.data());
    args.tiles = tiles.data();
    args.tile_count = int(cuda::attention_tiles(in.spans, in.shape.group(), tile_rows).size());
    args.tile_rows = tile_rows;
    args.heads = in.shape.heads;
    args.kv_heads = in.shape.kv_heads;
    args.head_dim = in.shape.head_dim;
  }

  /// Outputs, then log-sums.
  std::vector<float> attend(int fault = 0) {
    DeviceArray<float> out(in.out_size()), log_sums(in.log_sums_size());
    args.out = out.data();
    args.log_sums = log_sums.data();
    cuda::testing::attention(args, stream(), fault);
    std::vector<float> results = out.values();
    const std::vector<float> sums = log_sums.values();
    results.insert(results.end(), sums.begin(), sums.end());
    return results;
  }
};

}  // namespace longhaul::test
