// Attention on the device has the CPU's bits, on a forest's chains and on cache blocks, whichever queries share a tile or a launch.
#include "cuda/device/properties.h"
#include "cuda/kernels/attention/attention_backward.h"
#include "support/attention_inputs.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

/// A forest: a root of 45 rows, two children, a grandchild, and a second tree. Each node's queries are all its rows.
std::vector<Node> forest_nodes() {
  const std::vector<int32_t> root = range(0, 45), first = range(45, 52), second = range(52, 110), grandchild = range(110, 143);
  const auto joined = [](std::initializer_list<std::vector<int32_t>> parts) {
    std::vector<int32_t> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  return {{root, range(0, 45)},
          {joined({root, first}), range(45, 52)},
          {joined({root, second}), range(45, 103)},
          {joined({root, second, grandchild}), range(103, 136)},
          {range(143, 176), range(0, 33)},
          {range(176, 177), {}},
          {range(143, 160), {16}}};
}

/// Every head width, group and tile; queries that share a tile see different numbers of keys.
void chains_have_the_bits_of_the_cpu() {
  struct Case {
    Heads heads;
    Node node;
  };
  const Case cases[] = {{{1, 1, 16}, node_of(1, 1)},     {{2, 2, 16}, node_of(33, 33)},      {{4, 2, 32}, node_of(64, 20)},
                        {{8, 2, 48}, node_of(70, 40)},   {{7, 1, 64}, node_of(100, 11, 2)},  {{14, 2, 80}, node_of(40, 9)},
                        {{4, 2, 96}, node_of(65, 30)},   {{3, 1, 112}, node_of(31, 16)},     {{8, 2, 128}, node_of(96, 12)},
                        {{16, 1, 128}, node_of(50, 7)},  {{20, 1, 144}, node_of(37, 3)},     {{2, 1, 256}, node_of(66, 20)},
                        {{4, 1, 16}, node_of(701, 5)},   {{7, 1, 64}, node_of(1000, 1)},     {{2, 1, 32}, node_of(90, 45, 2)}};
  for (const Case& c : cases) {
    if (cuda::attention_shared_bytes(c.heads.head_dim) > cuda::most_shared_bytes()) continue;  // a GPU smaller than an H100
    const AttentionInputs in(c.heads, {c.node});
    const std::vector<float> expected = in.expected();
    for (const int tile_rows : {cuda::few_tile_rows, cuda::many_tile_rows})
      check_same_values(AttentionOnDevice(in, tile_rows).attend(), expected,
                        c.heads.name() + ", " + std::to_string(c.node.chain.size()) + " keys, tiles of " + std::to_string(tile_rows));
  }
}

void a_forest_has_the_bits_of_its_nodes() {
  for (const Heads heads : {Heads{4, 2, 32}, Heads{7, 1, 16}, Heads{2, 2, 128}}) {
    const AttentionInputs in(heads, forest_nodes());
    const std::vector<float> expected = in.expected();
    for (const int tile_rows : {cuda::few_tile_rows, cuda::many_tile_rows})
      check_same_values(AttentionOnDevice(in, tile_rows).attend(), expected, "forest, " + heads.name());
  }
}

void log_sums_are_optional() {
  const AttentionInputs in({4, 2, 32}, {node_of(40, 40)});
  AttentionOnDevice device(in, cuda::many_tile_rows);
  DeviceArray<float> out(in.out_size());
  device.args.out = out.data();
  cuda::attention(device.args, stream());
  std::vector<float> expected = in.expected();
  expected.resize(in.out_size());
  check_same_values(out.values(), expected, "outputs");
}

void schedules_change_nothing_and_every_barrier_is_needed() {
  for (const int tile_rows : {cuda::few_tile_rows, cuda::many_tile_rows}) {
    const AttentionInputs in({4, 2, 32}, {node_of(100, 19), node_of(33, 5)});
    AttentionOnDevice device(in, tile_rows);
    check_schedules<float>([&](int fault) { return device.attend(fault); }, in.expected(), cuda::testing::attention_faults,
                           "tiles of " + std::to_string(tile_rows));
  }
  if (cuda::attention_shared_bytes(256) > cuda::most_shared_bytes()) return;
  const AttentionInputs in({2, 1, 256}, {node_of(70, 20)});
  AttentionOnDevice device(in, cuda::many_tile_rows);
  check_schedules<float>([&](int fault) { return device.attend(fault); }, in.expected(), cuda::testing::attention_faults, "wide heads");
}

/// The CPU multiplies keys that a query does not see by 0, so an infinite value there would reach the query. In queries and keys, and in
/// values that all queries of a node see, NaN and infinity have the same effect on the device.
void nan_and_infinity_reach_the_same_outputs() {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float extreme : {infinity, -infinity, nan, 3e38f}) {
    for (const int part : {0, 1, 2}) {  // a query, a key, a value
      AttentionInputs in({4, 2, 48}, {node_of(75, 24), node_of(40, 3)});
      const int seen_by_all = in.nodes[0].chain[49], seen_by_some = in.nodes[0].chain[60];
      if (part == 0) in.qkv[size_t(in.query_rows[5]) * in.ld_qkv + 50] = extreme;
      if (part == 1) in.keys_values[size_t(seen_by_some) * in.ld_keys_values + 47] = extreme;
      if (part == 2) in.keys_values[size_t(seen_by_all) * in.ld_keys_values + 96 + 20] = extreme;
      const std::vector<float> expected = in.expected();
      size_t not_finite = 0;
      for (const float x : expected) not_finite += !std::isfinite(x);
      if (extreme == infinity || std::isnan(extreme))
        check(not_finite > 0 && not_finite < expected.size() / 2, "some outputs are not finite");
      for (const int tile_rows : {cuda::few_tile_rows, cuda::many_tile_rows})
        check_same_values(AttentionOnDevice(in, tile_rows).attend(), expected,
                          std::to_string(extreme) + " in part " + std::to_string(part));
    }
  }
}

/// On the CPU the sign of a zero can depend on neighbouring queries: a sum that underflows to −0 becomes +0 if a neighbour sees a later key, whose
/// positive value is then multiplied by 0. On the device, keys that a query does not see are left out: the result is that of the query alone.
void the_sign_of_zero_does_not_depend_on_neighbours() {
  AttentionInputs in({1, 1, 16}, {{range(0, 3), {1, 2}}});
  std::fill(in.qkv.begin(), in.qkv.end(), 100.0f);
  std::fill(in.keys_values.begin(), in.keys_values.end(), 0.0f);
  const auto set = [&](int row, float key, float value) {
    for (int d = 0; d < 16; ++d) {
      in.keys_values[size_t(row) * in.ld_keys_values + size_t(d)] = key;
      in.keys_values[size_t(row) * in.ld_keys_values + 16 + size_t(d)] = value;
    }
  };
  set(0, 1.0f, 0.0f);      // probability 1
  set(1, -1.0f, -1e-20f); // probability e⁻⁸⁷: the product underflows to −0
  set(2, -1.0f, 1.0f);     // not seen by the first query
  for_each_instruction_set([&](const ops::Table& table) {
    std::vector<float> alone(32), together(32);
    ops::ChainAttention chain = in.chain(0, together.data(), nullptr);
    table.chain_attention(chain);
    chain.queries = 1;
    chain.out = alone.data();
    table.chain_attention(chain);
    const std::vector<float> minus(16, -0.0f), plus(16, 0.0f), first(alone.begin(), alone.begin() + 16),
        with_neighbour(together.begin(), together.begin() + 16);
    check_same_values(first, minus, "the first query alone on the CPU");
    check_same_values(with_neighbour, plus, "the first query beside the second on the CPU");
    std::vector<float> on_device = AttentionOnDevice(in, cuda::many_tile_rows).attend();
    check_same_values({on_device.begin(), on_device.begin() + 16}, minus, "the first query on the device");
    check_same_values({on_device.begin() + 16, on_device.begin() + 32}, {together.begin() + 16, together.end()}, "the second query");
  });
}

void shapes_that_are_not_supported_are_refused() {
  const AttentionInputs in({2, 1, 32}, {node_of(5, 2)});
  AttentionOnDevice device(in, cuda::many_tile_rows);
  DeviceArray<float> out(in.out_size());
  device.args.out = out.data();
  const auto refused = [&](const std::string& part, const std::function<void(cuda::Attention&)>& change) {
    cuda::Attention args = device.args;
    change(args);
    check_throws<std::invalid_argument>([&] { cuda::attention(args, stream()); }, part, part);
  };
  refused("head_dim is 272; attention on this device supports multiples of 16 up to 256", [](auto& args) { args.head_dim = 272; });
  refused("head_dim is 24", [](auto& args) { args.head_dim = 24; });
  refused("not a multiple of the number of KV heads", [](auto& args) { args.kv_heads = 3; });
  refused("tiles have 8 or 32 rows", [](auto& args) { args.tile_rows = 16; });
  refused("16-byte aligned", [](auto& args) { args.qkv += 1; });
  refused("16-byte aligned", [](auto& args) { args.past.entry_stride += 2; });
  check_equal(cuda::attention_refusal(14, 2, 64), std::string(), "supported heads");
}

/// A cache with some sequences. Sequences that begin alike share blocks.
struct Cached {
  struct Sequence {
    int first_query, queries, keys;   // the queries are its last positions
    std::vector<int32_t> blocks;
  };
  Heads shape;
  static constexpr int layers = 2, layer = 1;
  int blocks = 0;
  std::vector<Sequence> sequences;
  std::vector<float> stored;             // [stored rows, ld]: what the cache holds
  std::vector<int32_t> stored_positions, stored_blocks;
  std::vector<float> qkv;                // [queries, ld]
  std::vector<int32_t> places, block_entries;
  std::vector<cuda::QuerySpan> spans;
  size_t ld;

  explicit Cached(Heads heads) : shape(heads), ld(heads.qkv_width()) {}

  /// A sequence of `keys` positions; its first blocks may be those of sequence `like`.
  void add(int keys, int queries, int like = -1, int shared_blocks = 0) {
    Sequence sequence{int(places.size()), queries, keys, {}};
    if (like >= 0) sequence.blocks.assign(sequences[size_t(like)].blocks.begin(), sequences[size_t(like)].blocks.begin() + shared_blocks);
    while (int(sequence.blocks.size()) * 32 < keys) sequence.blocks.push_back(blocks++);
    for (int p = shared_blocks * 32; p < keys; ++p) {
      stored_positions.push_back(p);
      stored_blocks.push_back(sequence.blocks[size_t(p / 32)]);
    }
    for (int p = keys - queries; p < keys; ++p) places.push_back(p);
    spans.push_back({sequence.first_query, queries, int(block_entries.size())});
    block_entries.insert(block_entries.end(), sequence.blocks.begin(), sequence.blocks.end());
    sequences.push_back(sequence);
  }

  void fill() {
    stored = with_zeros(scaled(random_values(stored_positions.size() * ld, 5), 4));
    qkv = with_zeros(scaled(random_values(places.size() * ld, 6), 4));
  }

  std::vector<float> expected() const {
    return reference(shape.name(), [&](const ops::Table& table) {
      const size_t head_stride = size_t(shape.head_dim) * 32 + size_t((shape.head_dim + 31) / 32) * 1024,
                   block_stride = head_stride * size_t(shape.kv_heads);
      std::vector<float> cache(block_stride * size_t(blocks)), out(places.size() * shape.query_width());
      for (size_t i = 0; i < stored_positions.size(); ++i) {
        const std::vector<int32_t> blocks_of_row(size_t(stored_positions[i] / 32 + 1), stored_blocks[i]);
        const int32_t* table_of_row = blocks_of_row.data();
        table.store_keys_values(stored.data() + i * ld, ld, 1, &stored_positions[i], &table_of_row, cache.data(), block_stride, head_stride,
                                shape.heads, shape.kv_heads, shape.head_dim);
      }
      std::vector<const int32_t*> tables;
      for (const Sequence& sequence : sequences)
        for (int i = 0; i < sequence.queries; ++i) tables.push_back(sequence.blocks.data());
      table.paged_attention({qkv.data(), ld, int(places.size()), places.data(), tables.data(), cache.data(), block_stride, head_stride,
                             shape.heads, shape.kv_heads, shape.head_dim, out.data()});
      return out;
    });
  }

  std::vector<float> on_device(int tile_rows) const {
    const DeviceArray<float> memory(size_t(blocks + 1) * layers * size_t(shape.kv_heads) * 64 * shape.head_dim), stored_rows(stored),
        queries(qkv), out(places.size() * shape.query_width());
    const cuda::CacheBlocks cache{memory.data(), layers, shape.kv_heads, shape.head_dim};
    // The first block is stored one place behind the last and then copied.
    std::vector<int32_t> stored_places;
    for (size_t i = 0; i < stored_positions.size(); ++i)
      stored_places.push_back((stored_blocks[i] == 0 ? blocks : stored_blocks[i]) * 32 + stored_positions[i] % 32);
    const DeviceArray<int32_t> stored_at(stored_places), counting(range(0, int(places.size()))), query_places(places),
        entries(block_entries);
    cuda::store_keys_values({cache, layer, stored_rows.data(), ld, int(stored_places.size()), stored_at.data(), shape.heads}, stream());
    cuda::copy_block(cache, blocks, 0, stream());
    const std::vector<cuda::AttentionTile> tiles = cuda::attention_tiles(spans, shape.group(), tile_rows);
    const DeviceArray<cuda::AttentionTile> device_tiles(tiles);
    cuda::Attention args{};
    args.qkv = queries.data();
    args.ld_qkv = ld;
    args.query_rows = counting.data();
    args.query_places = query_places.data();
    args.past = cuda::cached_past(cache, layer, entries.data());
    args.tiles = device_tiles.data();
    args.tile_count = int(tiles.size());
    args.tile_rows = tile_rows;
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.out = out.data();
    cuda::attention(args, stream());
    return out.values();
  }
};

/// Decoding and prefill in one launch, with blocks shared by sequences.
void the_cache_has_the_bits_of_the_cpu() {
  for (const Heads heads : {Heads{2, 2, 16}, Heads{4, 2, 32}, Heads{8, 2, 48}, Heads{7, 1, 64}, Heads{14, 2, 128}}) {
    Cached cached(heads);
    cached.add(70, 1);
    cached.add(90, 1, 0, 2);
    cached.add(64, 1, 0, 1);
    cached.add(33, 33);
    cached.add(101, 5, 3, 1);
    cached.add(1, 1);
    cached.add(720, 1);
    cached.fill();
    const std::vector<float> expected = cached.expected();
    for (const int tile_rows : {cuda::few_tile_rows, cuda::many_tile_rows}) {
      check_same_values(cached.on_device(tile_rows), expected, heads.name());
      cuda::set_schedule(3);
      const std::vector<float> mixed = cached.on_device(tile_rows);
      cuda::set_schedule(0);
      check_same_values(mixed, expected, heads.name() + ", mixed schedule");
    }
  }
}

}  // namespace

int main() {
  return run({{"chains have the bits of the CPU", chains_have_the_bits_of_the_cpu},
              {"a forest has the bits of its nodes", a_forest_has_the_bits_of_its_nodes},
              {"log-sums are optional", log_sums_are_optional},
              {"NaN and infinity reach the same outputs", nan_and_infinity_reach_the_same_outputs},
              {"the sign of zero does not depend on neighbours", the_sign_of_zero_does_not_depend_on_neighbours},
              {"shapes that are not supported are refused", shapes_that_are_not_supported_are_refused},
              {"the cache has the bits of the CPU", the_cache_has_the_bits_of_the_cpu},
              {"schedules change nothing, and every barrier is needed", schedules_change_nothing_and_every_barrier_is_needed}});
}
