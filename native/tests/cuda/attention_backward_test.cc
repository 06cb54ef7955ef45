// Gradients of attention on the device have the CPU's bits, also if several segments add to the same keys.
#include "cuda/device/properties.h"
#include "cuda/kernels/attention/attention_backward.h"

#include "support/attention_inputs.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

/// Rows of one node, and which of them have a query.
struct Part {
  int parent, rows;
  int first_query, step;
  int first_row = 0, place = 0;

  int end() const { return place + rows; }
};

/// A forest, one segment behind another, all queries in one pass.
struct Forest {
  std::vector<Part> parts;

  explicit Forest(std::vector<Part> of) : parts(std::move(of)) {
    int row = 0;
    for (Part& part : parts) {
      part.first_row = row;
      row += part.rows;
      part.place = part.parent < 0 ? 0 : parts[size_t(part.parent)].end();
    }
  }

  std::vector<Node> nodes() const {
    std::vector<Node> nodes;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      Node node;
      if (part.parent >= 0) node.chain = nodes[size_t(part.parent)].chain;
      for (const int32_t row : range(part.first_row, part.first_row + part.rows)) node.chain.push_back(row);
      node.places = range(part.place + part.first_query, part.end(), part.step);
      nodes.push_back(node);
    }
    return nodes;
  }

  std::vector<cuda::ForestSegment> segments(const AttentionInputs& in) const {
    std::vector<cuda::ForestSegment> segments;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      segments.push_back({part.parent, part.first_row, part.rows, part.place, in.spans[i].first_query, in.spans[i].queries});
    }
    return segments;
  }
};

/// Gradients of queries, then of keys and values.
struct Gradients {
  AttentionInputs in;
  Forest forest;
  std::vector<int> order;  // segments in the order in which they add
  std::vector<float> d_out, d_qkv, d_keys_values;

  Gradients(Heads heads, Forest of, float spread = 4) : in(heads, of.nodes(), spread), forest(std::move(of)) {
    for (int i = int(forest.parts.size()) - 1; i >= 0; --i) order.push_back(i);
    d_out = with_zeros(random_values(in.out_size(), 3));
    // Gradients are added to existing values.
    d_qkv = with_zeros(random_values(in.qkv.size(), 4));
    d_keys_values = with_zeros(random_values(in.keys_values.size(), 7));
  }

  std::vector<float> expected() const {
    return reference(in.shape.name(), [&](const ops::Table& table) {
      std::vector<float> out(in.out_size()), log_sums(in.log_sums_size()), d_queries = d_qkv, d_keys = d_keys_values;
      for (size_t i = 0; i < in.nodes.size(); ++i) table.chain_attention(in.chain(i, out.data(), log_sums.data()));
      for (const int i : order)
        table.chain_attention_backward({in.chain(size_t(i), out.data(), log_sums.data()), d_out.data(), d_queries.data(), d_keys.data()});
      d_queries.insert(d_queries.end(), d_keys.begin(), d_keys.end());
      return d_queries;
    });
  }

  std::vector<float> on_device(int fault = 0) const {
    AttentionOnDevice device(in, cuda::many_tile_rows);
    const cuda::KeyTiles plan = cuda::key_tiles(forest.segments(in), order);
    const DeviceArray<cuda::KeyTile> tiles(plan.tiles);
    const DeviceArray<cuda::KeyReader> readers(plan.readers);
    const DeviceArray<float> out(in.out_size()), log_sums(in.log_sums_size()), pulls(in.log_sums_size()), d_outputs(d_out),
        d_queries(d_qkv), d_keys(d_keys_values);
    device.args.out = out.data();
    device.args.log_sums = log_sums.data();
    cuda::attention(device.args, stream());
    cuda::AttentionBackward args{};
    args.forward = device.args;
    args.d_out = d_outputs.data();
    args.pulls = pulls.data();
    args.d_queries = d_queries.data();
    args.d_keys_values = d_keys.data();
    args.key_tiles = tiles.data();
    args.key_tile_count = int(plan.tiles.size());
    args.readers = readers.data();
    cuda::testing::attention_backward(args, stream(), fault);
    std::vector<float> results = d_queries.values();
    const std::vector<float> keys = d_keys.values();
    results.insert(results.end(), keys.begin(), keys.end());
    return results;
  }
};

/// A root with two children and a grandchild; a second tree of two segments.
Forest branching() {
  return Forest({{-1, 45, 0, 1}, {0, 7, 0, 1}, {0, 58, 0, 1}, {2, 33, 0, 1}, {-1, 64, 0, 1}, {4, 1, 0, 1}});
}

void one_chain_has_the_bits_of_the_cpu() {
  struct Case {
    Heads heads;
    Part part;
  };
  const Case cases[] = {{{1, 1, 16}, {-1, 1, 0, 1}},     {{2, 2, 16}, {-1, 33, 0, 1}},    {{4, 2, 32}, {-1, 64, 44, 1}},
                        {{8, 2, 48}, {-1, 70, 30, 1}},   {{7, 1, 64}, {-1, 100, 79, 2}},  {{14, 2, 80}, {-1, 40, 31, 1}},
                        {{4, 2, 96}, {-1, 65, 35, 1}},   {{3, 1, 112}, {-1, 31, 15, 1}},  {{8, 2, 128}, {-1, 96, 84, 1}},
                        {{16, 1, 128}, {-1, 50, 43, 1}}, {{20, 1, 144}, {-1, 37, 34, 1}}, {{2, 1, 256}, {-1, 66, 46, 1}},
                        {{4, 1, 16}, {-1, 701, 690, 3}}, {{2, 1, 32}, {-1, 90, 0, 2}},    {{1, 1, 16}, {-1, 720, 0, 1}}};
  for (const Case& c : cases) {
    if (cuda::attention_shared_bytes(c.heads.head_dim) > cuda::most_shared_bytes()) continue;  // a GPU smaller than an H100
    const Gradients gradients(c.heads, Forest({c.part}));
    check_same_values(gradients.on_device(), gradients.expected(), c.heads.name() + ", " + std::to_string(c.part.rows) + " keys");
  }
}

void segments_add_in_canonical_order() {
  for (const Heads heads : {Heads{4, 2, 32}, Heads{7, 1, 16}, Heads{8, 2, 64}, Heads{2, 2, 128}}) {
    const Gradients gradients(heads, branching());
    const std::vector<float> expected = gradients.expected();
    check_same_values(gradients.on_device(), expected, "a forest, " + heads.name());
    Gradients reversed = gradients;
    std::reverse(reversed.order.begin(), reversed.order.end());
    check(!same_values(reversed.on_device(), expected), "the order of segments shows in the bits");
    check_same_values(reversed.on_device(), reversed.expected(), "another order, " + heads.name());
  }
}

/// As in the last layer, only some rows have a query, and some segments have none. Keys after a segment's last query do not change.
void rows_without_queries_add_nothing() {
  const Gradients gradients({4, 2, 32}, Forest({{-1, 80, 80, 1}, {0, 70, 3, 9}, {0, 5, 5, 1}, {2, 40, 11, 1}, {-1, 100, 2, 200}}));
  check_same_values(gradients.on_device(), gradients.expected(), "few queries");
}

/// Keys of an earlier pass, whose queries are not in this one.
void earlier_passes_get_gradients() {
  Gradients gradients({4, 2, 32}, branching());
  gradients.order = {3, 1};
  // The forward pass below computes outputs only for the queries of these segments; the gradients of other queries do not change.
  for (const int i : {0, 2, 4, 5}) gradients.in.spans[size_t(i)].queries = 0;
  const std::vector<float> expected = gradients.expected();
  check_same_values(gradients.on_device(), expected, "two segments of a later pass");
}

void schedules_change_nothing_and_every_barrier_is_needed() {
  const Gradients narrow({4, 2, 32}, Forest({{-1, 70, 20, 1}, {0, 20, 0, 1}, {0, 9, 0, 1}}));
  check_schedules<float>([&](int fault) { return narrow.on_device(fault); }, narrow.expected(), cuda::testing::attention_backward_faults,
                         "narrow heads");
  if (cuda::attention_shared_bytes(256) > cuda::most_shared_bytes()) return;
  const Gradients wide({2, 1, 256}, Forest({{-1, 40, 10, 1}, {0, 18, 0, 1}}));
  check_schedules<float>([&](int fault) { return wide.on_device(fault); }, wide.expected(), cuda::testing::attention_backward_faults,
                         "wide heads");
}

/// If all queries see a block of keys, NaN and infinity in it have the same effect as on the CPU. (The CPU multiplies keys that a query does not
/// see by 0.)
void nan_and_infinity_reach_the_same_gradients() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float extreme : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()})
    for (const int part : {0, 1, 2, 3}) {
      Gradients gradients({4, 2, 48}, Forest({{-1, 64, 60, 1}, {0, 30, 0, 1}}));
      AttentionInputs& in = gradients.in;
      // The query at place 63 sees all keys of its block of 32.
      const size_t query = 3;
      if (part == 0) in.qkv[size_t(in.query_rows[query]) * in.ld_qkv + 50] = extreme;
      if (part == 1) in.keys_values[5 * in.ld_keys_values + 47] = extreme;
      if (part == 2) in.keys_values[7 * in.ld_keys_values + 96 + 20] = extreme;
      if (part == 3) gradients.d_out[query * in.shape.query_width() + 3] = extreme;
      check_same_values(gradients.on_device(), gradients.expected(), std::to_string(extreme) + " in part " + std::to_string(part));
    }
}

void shapes_that_are_not_supported_are_refused() {
  const AttentionInputs in({2, 1, 32}, {node_of(5, 2)});
  AttentionOnDevice device(in, cuda::many_tile_rows);
  DeviceArray<float> out(in.out_size()), log_sums(in.log_sums_size());
  device.args.out = out.data();
  device.args.log_sums = log_sums.data();
  const auto refused = [&](const std::string& part, const std::function<void(cuda::AttentionBackward&)>& change) {
    cuda::AttentionBackward args{};
    args.forward = device.args;
    change(args);
    check_throws<std::invalid_argument>([&] { cuda::attention_backward(args, stream()); }, part, part);
  };
  refused("head_dim is 512", [](auto& args) { args.forward.head_dim = 512; });
  refused("it needs chains of rows", [](auto& args) { args.forward.past.entry_shift = 5; });
  refused("tiles of 32 rows", [](auto& args) { args.forward.tile_rows = cuda::few_tile_rows; });
  refused("it needs log-sums", [](auto& args) { args.forward.log_sums = nullptr; });
}

}  // namespace

int main() {
  return run({{"one chain has the bits of the CPU", one_chain_has_the_bits_of_the_cpu},
              {"segments add in canonical order", segments_add_in_canonical_order},
              {"rows without queries add nothing", rows_without_queries_add_nothing},
              {"earlier passes get gradients", earlier_passes_get_gradients},
              {"NaN and infinity reach the same gradients", nan_and_infinity_reach_the_same_gradients},
              {"shapes that are not supported are refused", shapes_that_are_not_supported_are_refused},
              {"schedules change nothing, and every barrier is needed", schedules_change_nothing_and_every_barrier_is_needed}});
}
