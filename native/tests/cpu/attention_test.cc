// Compares attention with a plain loop in double precision, at every head width. The bits are the same on every instruction set, from a
// cache and from a chain, and whatever else the call computes.
#include <cmath>

#include "support/every_set.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

struct Case {
  int heads, kv_heads, head_dim, chain, queries;

  int group() const { return heads / kv_heads; }
  size_t query_width() const { return size_t(heads) * head_dim; }
  size_t kv_width() const { return size_t(2) * kv_heads * head_dim; }
  std::string name() const {
    return std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " + std::to_string(head_dim) + ", chain of " +
           std::to_string(chain) + ", " + std::to_string(queries) + " queries";
  }
};

// The queries are the last rows of the chain. In the cases with an odd chain that is long enough, they are every second row.
constexpr Case cases[] = {{2, 2, 16, 1, 1},   {4, 2, 32, 33, 20},  {6, 2, 48, 70, 70},  {2, 1, 64, 129, 64}, {3, 1, 80, 40, 40},
                          {4, 4, 96, 65, 30}, {4, 1, 112, 31, 16}, {5, 1, 128, 50, 50}, {4, 2, 16, 300, 300}, {2, 1, 16, 1500, 24}};

/// The rows of keys and values are in mixed order, and so are the rows of queries and outputs.
struct Inputs {
  Case shape;
  size_t ld_qkv, ld_keys_values;
  std::vector<float> qkv, keys_values, d_out;
  std::vector<int32_t> chain_rows, places, query_rows, outputs;

  explicit Inputs(Case s) : shape(s), ld_qkv(s.query_width() + s.kv_width()), ld_keys_values(s.kv_width() + 16) {
    const int step = s.chain % 2 == 1 && s.queries * 2 <= s.chain ? 2 : 1;
    for (int j = 0; j < s.chain; ++j) chain_rows.push_back((j * 7 + 3) % s.chain);
    if (s.chain % 7 == 0)
      for (int j = 0; j < s.chain; ++j) chain_rows[size_t(j)] = s.chain - 1 - j;
    for (int i = 0; i < s.queries; ++i) {
      places.push_back(s.chain - 1 - (s.queries - 1 - i) * step);
      query_rows.push_back(s.queries - 1 - i);
      outputs.push_back((i + 1) % s.queries);
    }
    qkv = scaled(random_values(size_t(s.queries) * ld_qkv, 1), 4);
    keys_values = scaled(random_values(size_t(s.chain) * ld_keys_values, 2), 4);
    d_out = random_values(size_t(s.queries) * s.query_width(), 3);
  }

  ops::ChainAttention chain(float* out, float* log_sums) const {
    return {qkv.data(),        ld_qkv,          keys_values.data(),  ld_keys_values,    chain_rows.data(),
            shape.chain,       places.data(),   query_rows.data(),   outputs.data(),    shape.queries,
            0,                 shape.kv_heads,  shape.heads,         shape.kv_heads,    shape.head_dim,
            out,               log_sums};
  }
  size_t out_size() const { return size_t(shape.queries) * shape.query_width(); }
  size_t log_sums_size() const { return size_t(shape.queries) * shape.heads; }
  const float* query(int i, int head) const {
    return qkv.data() + size_t(query_rows[size_t(i)]) * ld_qkv + size_t(head) * shape.head_dim;
  }
  size_t key_at(int place, int kv) const { return size_t(chain_rows[size_t(place)]) * ld_keys_values + size_t(kv) * shape.head_dim; }
  size_t value_at(int place, int kv) const { return key_at(place, shape.kv_heads + kv); }
  size_t output_at(int i, int head) const { return size_t(outputs[size_t(i)]) * shape.query_width() + size_t(head) * shape.head_dim; }
};

struct Expected {
  std::vector<double> out, log_sums, d_queries, d_keys_values;
};

/// Computes the formulas for one query and one head after another.
Expected plain(const Inputs& in) {
  const Case& s = in.shape;
  Expected e;
  e.out.resize(in.out_size());
  e.log_sums.resize(in.log_sums_size());
  e.d_queries.resize(in.qkv.size());
  e.d_keys_values.resize(in.keys_values.size());
  const double scale = 1 / std::sqrt(double(s.head_dim));
  for (int i = 0; i < s.queries; ++i)
    for (int h = 0; h < s.heads; ++h) {
      const int kv = h / s.group(), keys = in.places[size_t(i)] + 1;
      const float* q = in.query(i, h);
      std::vector<double> p(static_cast<size_t>(keys)), d_p(static_cast<size_t>(keys));
      double greatest = -1e30, sum = 0;
      for (int j = 0; j < keys; ++j) {
        for (int d = 0; d < s.head_dim; ++d) p[size_t(j)] += scale * q[d] * double(in.keys_values[in.key_at(j, kv) + size_t(d)]);
        greatest = std::max(greatest, p[size_t(j)]);
      }
      for (double& x : p) sum += x = std::exp(x - greatest);
      for (double& x : p) x /= sum;
      e.log_sums[size_t(in.outputs[size_t(i)]) * s.heads + h] = greatest + std::log(sum);
      const size_t out = in.output_at(i, h);
      double pull = 0;
      for (int j = 0; j < keys; ++j)
        for (int d = 0; d < s.head_dim; ++d) {
          const double value = in.keys_values[in.value_at(j, kv) + size_t(d)], gradient = in.d_out[out + size_t(d)];
          e.out[out + size_t(d)] += p[size_t(j)] * value;
          d_p[size_t(j)] += gradient * value;
          pull += p[size_t(j)] * gradient * value;
          e.d_keys_values[in.value_at(j, kv) + size_t(d)] += p[size_t(j)] * gradient;
        }
      for (int j = 0; j < keys; ++j) {
        const double d_score = p[size_t(j)] * (d_p[size_t(j)] - pull) * scale;
        const size_t query = size_t(q - in.qkv.data());
        for (int d = 0; d < s.head_dim; ++d) {
          e.d_queries[query + size_t(d)] += d_score * double(in.keys_values[in.key_at(j, kv) + size_t(d)]);
          e.d_keys_values[in.key_at(j, kv) + size_t(d)] += d_score * double(q[d]);
        }
      }
    }
  return e;
}

std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> all;
  for (const std::vector<float>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

void chains_match_double_precision() {
  for (const Case& s : cases) {
    const Inputs in(s);
    const Expected expected = plain(in);
    std::vector<float> out, log_sums, d_queries, d_keys_values;
    on_every_set(s.name(), [&](const ops::Table& table) {
      out.assign(in.out_size(), 0);
      log_sums.assign(in.log_sums_size(), 0);
      d_queries.assign(in.qkv.size(), 0);
      d_keys_values.assign(in.keys_values.size(), 0);
      const ops::ChainAttention chain = in.chain(out.data(), log_sums.data());
      table.chain_attention(chain);
      table.chain_attention_backward({chain, in.d_out.data(), d_queries.data(), d_keys_values.data()});
      return joined({out, log_sums, d_queries, d_keys_values});
    });
    check_close(out, expected.out, 5e-6, "outputs of " + s.name());
    check_close(log_sums, expected.log_sums, 5e-6, "log-sums of " + s.name());
    check_close(d_queries, expected.d_queries, 2e-5, "gradients of queries of " + s.name());
    check_close(d_keys_values, expected.d_keys_values, 2e-5, "gradients of keys and values of " + s.name());
  }
}

void heads_can_be_shared_between_calls() {
  const Inputs in({6, 3, 48, 90, 60});
  std::vector<float> out[2], log_sums[2], d_queries[2], d_keys_values[2];
  for (const bool apart : {false, true}) {
    out[apart].assign(in.out_size(), 0);
    log_sums[apart].assign(in.log_sums_size(), 0);
    // Not zero at first, because gradients are added to the earlier values.
    d_queries[apart].assign(in.qkv.size(), 0.25f);
    d_keys_values[apart].assign(in.keys_values.size(), -0.5f);
    for (const auto& [first, last] : apart ? std::vector<std::pair<int, int>>{{2, 3}, {0, 2}} : std::vector<std::pair<int, int>>{{0, 3}}) {
      ops::ChainAttention chain = in.chain(out[apart].data(), log_sums[apart].data());
      chain.first_kv_head = first;
      chain.last_kv_head = last;
      ops::table().chain_attention(chain);
      ops::table().chain_attention_backward({chain, in.d_out.data(), d_queries[apart].data(), d_keys_values[apart].data()});
    }
  }
  check_same_bits(out[1], out[0], "outputs");
  check_same_bits(log_sums[1], log_sums[0], "log-sums");
  check_same_bits(d_queries[1], d_queries[0], "gradients of queries");
  check_same_bits(d_keys_values[1], d_keys_values[0], "gradients of keys and values");
}

/// A query's output and gradient are the same when it is computed alone and together with all other queries.
void queries_do_not_depend_on_their_neighbours() {
  const Inputs in({4, 2, 80, 150, 150});
  std::vector<float> together(in.out_size()), apart(in.out_size()), log_sums(in.log_sums_size());
  std::vector<float> d_together(in.qkv.size()), d_apart(in.qkv.size()), d_keys_values(in.keys_values.size());
  const ops::ChainAttention all = in.chain(together.data(), log_sums.data());
  ops::table().chain_attention(all);
  ops::table().chain_attention_backward({all, in.d_out.data(), d_together.data(), d_keys_values.data()});
  for (int first = 0, count = 1; first < all.queries; first += count, count = std::min(count + 9, all.queries - first)) {
    ops::ChainAttention some = in.chain(apart.data(), log_sums.data());
    some.query_places += first;
    some.query_rows += first;
    some.query_outputs += first;
    some.queries = count;
    ops::table().chain_attention(some);
    ops::table().chain_attention_backward({some, in.d_out.data(), d_apart.data(), d_keys_values.data()});
  }
  check_same_bits(apart, together, "outputs");
  check_same_bits(d_apart, d_together, "gradients of queries");
}

/// A block-wise cache that holds the chain of `in` as one sequence.
struct Cache {
  const Inputs& in;
  size_t head_stride, block_stride;
  std::vector<float> values;
  std::vector<int32_t> table;
  std::vector<float> rows;  // [chain, queries, keys, values]
  size_t ld;

  Cache(const Inputs& inputs, const ops::Table& op) : in(inputs), ld(inputs.ld_qkv) {
    const Case& s = in.shape;
    const int blocks = (s.chain + 31) / 32;
    head_stride = size_t(s.head_dim) * 32 + size_t((s.head_dim + 31) / 32) * 1024;
    block_stride = head_stride * s.kv_heads;
    values.assign(block_stride * size_t(blocks + 2), 0.0f);
    for (int b = 0; b < blocks; ++b) table.push_back(blocks + 1 - b);
    rows.assign(size_t(s.chain) * ld, 0.0f);
    std::vector<int32_t> positions;
    std::vector<const int32_t*> tables(size_t(s.chain), table.data());
    for (int j = 0; j < s.chain; ++j) {
      std::copy_n(in.keys_values.data() + in.key_at(j, 0), s.kv_width(), rows.data() + j * ld + s.query_width());
      positions.push_back(j);
    }
    op.store_keys_values(rows.data(), ld, s.chain, positions.data(), tables.data(), values.data(), block_stride, head_stride,
                         s.heads, s.kv_heads, s.head_dim);
  }

  /// Outputs of `count` queries, beginning with `first`: [count, heads · head_dim]
  std::vector<float> attend(const ops::Table& op, int first, int count) const {
    const Case& s = in.shape;
    std::vector<float> qkv(size_t(count) * ld), out(size_t(count) * s.query_width());
    std::vector<int32_t> positions;
    std::vector<const int32_t*> tables(size_t(count), table.data());
    for (int i = 0; i < count; ++i) {
      std::copy_n(in.query(first + i, 0), s.query_width(), qkv.data() + i * ld);
      positions.push_back(in.places[size_t(first + i)]);
    }
    op.paged_attention({qkv.data(), ld, count, positions.data(), tables.data(), values.data(), block_stride, head_stride,
                        s.heads, s.kv_heads, s.head_dim, out.data()});
    return out;
  }
};

void the_cache_gives_the_bits_of_the_chain() {
  for (const Case& s : cases) {
    const Inputs in(s);
    std::vector<float> out(in.out_size()), in_order;
    ops::table().chain_attention(in.chain(out.data(), nullptr));
    for (int i = 0; i < s.queries; ++i) {
      const float* row = out.data() + in.output_at(i, 0);
      in_order.insert(in_order.end(), row, row + s.query_width());
    }
    for_each_instruction_set([&](const ops::Table& op) {
      const Cache cache(in, op);
      check_same_bits(cache.attend(op, 0, s.queries), in_order, std::string(op.name) + ", all queries of " + s.name());
      for (int i = 0; i < s.queries; i += 17) {
        const std::vector<float> alone(in_order.begin() + std::ptrdiff_t(i * s.query_width()),
                                       in_order.begin() + std::ptrdiff_t((i + 1) * s.query_width()));
        check_same_bits(cache.attend(op, i, 1), alone, std::string(op.name) + ", one query of " + s.name());
      }
    });
  }
}

void zero_queries_change_nothing() {
  Inputs in({2, 1, 32, 10, 5});
  std::vector<float> out(in.out_size(), 3.0f), log_sums(in.log_sums_size(), 3.0f);
  const std::vector<float> before(out);
  ops::ChainAttention none = in.chain(out.data(), log_sums.data());
  none.queries = 0;
  ops::table().chain_attention(none);
  std::vector<float> d_queries(in.qkv.size()), d_keys_values(in.keys_values.size());
  ops::table().chain_attention_backward({none, in.d_out.data(), d_queries.data(), d_keys_values.data()});
  check_same_bits(out, before, "outputs");
  check_same_bits(d_keys_values, std::vector<float>(in.keys_values.size()), "gradients");
}

}  // namespace

int main() {
  return run({{"chains match double precision", chains_match_double_precision},
              {"heads can be shared between calls", heads_can_be_shared_between_calls},
              {"queries do not depend on their neighbours", queries_do_not_depend_on_their_neighbours},
              {"the cache gives the bits of the chain", the_cache_gives_the_bits_of_the_chain},
              {"zero queries change nothing", zero_queries_change_nothing}});
}
