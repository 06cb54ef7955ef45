// Attention in the sums of an H100's tensor cores: the bits of a plain loop in the same order, from a chain and from a cache, on every
// instruction set, and close to double precision.
#include <bit>
#include <cmath>

#include "base/tensor_core.h"
#include "support/every_set.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

struct Case {
  int heads, kv_heads, head_dim, chain, queries;

  std::string name() const {
    return std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " + std::to_string(head_dim) + ", " +
           std::to_string(queries) + " queries of " + std::to_string(chain);
  }
};

// Around blocks of 64 keys and spans of 2,048.
constexpr Case cases[] = {{1, 1, 16, 1, 1},    {2, 1, 32, 64, 64},   {3, 1, 48, 65, 65},   {4, 2, 64, 130, 40},
                          {5, 1, 128, 100, 7}, {2, 2, 16, 2048, 2},  {2, 1, 16, 2049, 3},  {1, 1, 16, 4200, 4}};

float as_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

std::vector<float> bf16_values(size_t n, uint32_t stream, float spread) {
  std::vector<float> values = scaled(random_values(n, stream), spread);
  for (float& value : values) value = as_bf16(value);
  return values;
}

/// The last rows of one chain ask. Row j of `keys_values` is key j, then value j, of each KV head.
struct Inputs {
  Case shape;
  size_t ld_qkv, ld_keys_values;
  std::vector<float> qkv, keys_values;
  std::vector<int32_t> chain_rows, places, query_rows;

  explicit Inputs(Case s, float spread = 4)
      : shape(s),
        ld_qkv(size_t(s.heads + 2 * s.kv_heads) * size_t(s.head_dim)),
        ld_keys_values(size_t(2) * s.kv_heads * size_t(s.head_dim)) {
    for (int j = 0; j < s.chain; ++j) chain_rows.push_back(j);
    for (int i = 0; i < s.queries; ++i) {
      places.push_back(s.chain - s.queries + i);
      query_rows.push_back(i);
    }
    qkv = bf16_values(size_t(s.queries) * ld_qkv, 1, spread);
    keys_values = bf16_values(size_t(s.chain) * ld_keys_values, 2, spread);
  }

  size_t out_size() const { return size_t(shape.queries) * shape.heads * size_t(shape.head_dim); }
  const float* query(int i, int head) const { return qkv.data() + size_t(i) * ld_qkv + size_t(head) * size_t(shape.head_dim); }
  const float* key(int place, int kv) const {
    return keys_values.data() + size_t(place) * ld_keys_values + size_t(kv) * size_t(shape.head_dim);
  }
  const float* value(int place, int kv) const { return key(place, shape.kv_heads + kv); }
  int kv_of(int head) const { return head / (shape.heads / shape.kv_heads); }

  /// Queries [first, first + count): outputs, then log-sums.
  std::vector<float> from_chain(const ops::Table& table, int first, int count) const {
    std::vector<float> results(out_size() + size_t(shape.queries) * shape.heads);
    table.chain_attention({qkv.data(), ld_qkv, keys_values.data(), ld_keys_values, chain_rows.data(), shape.chain,
                                       places.data() + first, query_rows.data() + first, query_rows.data() + first, count, 0,
                                       shape.kv_heads, shape.heads, shape.kv_heads, shape.head_dim, results.data(),
                                       results.data() + out_size()});
    return results;
  }

  std::vector<float> from_cache(const ops::Table& table) const {
    const int blocks = (shape.chain + ops::panel_columns - 1) / ops::panel_columns, hd = shape.head_dim;
    const size_t head_stride = size_t(ops::panel_columns) * size_t(hd + ops::panel_count(hd) * ops::panel_columns),
                 block_stride = head_stride * size_t(shape.kv_heads);
    // Slots that no row has filled hold NaN.
    std::vector<float> cache(block_stride * size_t(blocks), std::nanf(""));
    std::vector<int32_t> order;
    for (int b = 0; b < blocks; ++b) order.push_back(blocks - 1 - b);
    std::vector<float> rows(size_t(shape.chain) * ld_qkv);
    std::vector<int32_t> positions;
    const std::vector<const int32_t*> tables(size_t(shape.chain), order.data());
    for (int j = 0; j < shape.chain; ++j) {
      positions.push_back(j);
      std::copy_n(key(j, 0), ld_keys_values, rows.begin() + std::ptrdiff_t(size_t(j) * ld_qkv + size_t(shape.heads) * size_t(hd)));
    }
    table.store_keys_values(rows.data(), ld_qkv, shape.chain, positions.data(), tables.data(), cache.data(), block_stride, head_stride,
                            shape.heads, shape.kv_heads, hd);
    std::vector<float> out(out_size());
    table.paged_attention({qkv.data(), ld_qkv, shape.queries, places.data(), tables.data(), cache.data(), block_stride,
                                       head_stride, shape.heads, shape.kv_heads, hd, out.data()});
    return out;
  }
};

/// 2ᵗ in the order of the kernels.
float two_to(float t) {
  t = -125.0f > t ? -125.0f : t;
  const float z = t + 12582912.0f, f = t - (z - 12582912.0f);
  float p = 0.00132647227f;
  for (const float factor : {0.00967151299f, 0.0555073358f, 0.240222424f, 0.693147004f, 1.0f}) p = std::fma(p, f, factor);
  return std::ldexp(p, int(z - 12582912.0f));
}

/// The order that cpu/tensor_core_attention.h states, one row and one head after another. Outputs alone.
std::vector<float> plain(const Inputs& in) {
  const int hd = in.shape.head_dim;
  const float scale = float(1.4426950408889634 / std::sqrt(double(hd)));
  std::vector<float> out;
  for (int i = 0; i < in.shape.queries; ++i)
    for (int head = 0; head < in.shape.heads; ++head) {
      const int visible = in.places[size_t(i)] + 1, kv = in.kv_of(head);
      float all_greatest = 0, all_weights = 0;
      std::vector<float> all(size_t(hd), 0.0f);
      for (int span = 0; span < visible; span += 2048) {
        float greatest = -INFINITY, parts[4] = {};
        std::vector<float> sums(size_t(hd), 0.0f);
        for (int block = span; block < std::min(visible, span + 2048); block += 64) {
          float weights[64] = {}, scores[64];
          const int seen = std::min(64, visible - block);
          float top = -INFINITY;
          for (int j = 0; j < seen; ++j) {
            scores[j] = 0;
            for (int d = 0; d < hd; d += 16)
              scores[j] = tensor_core_sum(scores[j], in.query(i, head) + d, 1, in.key(block + j, kv) + d, 1, 16);
            top = std::max(top, scores[j]);
          }
          const float now = std::max(greatest, top * scale), factor = two_to(greatest - now);
          greatest = now;
          for (int j = 0; j < seen; ++j) weights[j] = two_to(std::fma(scores[j], scale, -now));
          for (int part = 0; part < 4; ++part) {
            float t[4];
            for (int s = 0; s < 4; ++s) {
              const float* w = weights + 16 * s + 2 * part;
              t[s] = (w[0] + w[1]) + (w[8] + w[9]);
            }
            parts[part] = std::fma(parts[part], factor, (t[0] + t[1]) + (t[2] + t[3]));
          }
          for (float& weight : weights) weight = as_bf16(weight);
          std::vector<float> values(64 * size_t(hd), 0.0f);
          for (int j = 0; j < seen; ++j) std::copy_n(in.value(block + j, kv), hd, values.begin() + j * hd);
          for (int d = 0; d < hd; ++d) {
            float sum = factor == 1.0f ? sums[size_t(d)] : sums[size_t(d)] * factor;
            for (int j = 0; j < 64; j += 16) sum = tensor_core_sum(sum, weights + j, 1, values.data() + j * hd + d, size_t(hd), 16);
            sums[size_t(d)] = sum;
          }
        }
        const float weights = (parts[0] + parts[1]) + (parts[2] + parts[3]);
        if (span == 0) {
          all_greatest = greatest;
          all_weights = weights;
          all = sums;
          continue;
        }
        const float now = std::max(all_greatest, greatest), before = two_to(all_greatest - now), factor = two_to(greatest - now);
        all_greatest = now;
        all_weights = std::fma(all_weights, before, weights * factor);
        for (int d = 0; d < hd; ++d) all[size_t(d)] = std::fma(all[size_t(d)], before, sums[size_t(d)] * factor);
      }
      const float inverse = 1.0f / all_weights;
      for (const float sum : all) out.push_back(as_bf16(sum * inverse));
    }
  return out;
}

void attention_has_the_bits_of_a_plain_loop() {
  for (const Case shape : cases) {
    const Inputs in(shape);
    const std::vector<float> expected = plain(in);
    for_each_instruction_set([&](const ops::Table& table) {
      const std::string what = std::string(table.name) + ", " + shape.name();
      std::vector<float> chain = in.from_chain(table, 0, shape.queries);
      chain.resize(in.out_size());
      check_same_bits(chain, expected, what + ", from a chain");
      check_same_bits(in.from_cache(table), expected, what + ", from a cache");
    }, ops::Arithmetic::bf16);
  }
}

void a_row_does_not_depend_on_its_neighbours() {
  for (const Case shape : {Case{3, 1, 48, 65, 65}, Case{4, 2, 64, 130, 40}}) {
    const Inputs in(shape);
    for_each_instruction_set([&](const ops::Table& table) {
      const std::vector<float> together = in.from_chain(table, 0, shape.queries);
      std::vector<float> alone(together.size());
      for (int i = 0; i < shape.queries; ++i) {
        const std::vector<float> one = in.from_chain(table, i, 1);
        for (size_t j = 0; j < one.size(); ++j) alone[j] += one[j];  // all other results are 0
      }
      check_same_bits(alone, together, std::string(table.name) + ", " + shape.name());
    }, ops::Arithmetic::bf16);
  }
}

void attention_is_close_to_double_precision() {
  for (const Case shape : cases) {
    const Inputs in(shape, 2);
    const int hd = shape.head_dim;
    std::vector<double> out, log_sums;
    for (int i = 0; i < shape.queries; ++i)
      for (int head = 0; head < shape.heads; ++head) {
        std::vector<double> values(size_t(hd), 0.0);
        double total = 0;
        for (int j = 0; j <= in.places[size_t(i)]; ++j) {
          double score = 0;
          for (int d = 0; d < hd; ++d) score += double(in.query(i, head)[d]) * in.key(j, in.kv_of(head))[d];
          const double weight = std::exp(score / std::sqrt(double(hd)));
          total += weight;
          for (int d = 0; d < hd; ++d) values[size_t(d)] += weight * in.value(j, in.kv_of(head))[d];
        }
        for (const double value : values) out.push_back(value / total);
        log_sums.push_back(std::log2(total));
      }
    std::vector<float> results = in.from_chain(ops::table(ops::Arithmetic::bf16), 0, shape.queries);
    const std::vector<float> found(results.begin() + std::ptrdiff_t(out.size()), results.end());
    results.resize(out.size());
    check_close(results, out, 8e-3, shape.name());  // twice bf16's precision
    check_close(found, log_sums, 1e-5, shape.name() + ", log-sums");
  }
}

/// [queries, ld_qkv], then [keys, ld_keys_values].
using Gradients = std::vector<float>;

/// Queries [first, first + count) of `from_chain`'s results, added to `gradients`.
void add_gradients(const Inputs& in, const ops::Table& table, const std::vector<float>& d_out, std::vector<float>& results, int first, int count,
                   Gradients& gradients) {
  const Case& s = in.shape;
  const ops::ChainAttention forward{in.qkv.data(), in.ld_qkv, in.keys_values.data(), in.ld_keys_values, in.chain_rows.data(), s.chain,
                                    in.places.data() + first, in.query_rows.data() + first, in.query_rows.data() + first, count, 0,
                                    s.kv_heads, s.heads, s.kv_heads, s.head_dim, results.data(), results.data() + in.out_size()};
  table.chain_attention_backward({forward, d_out.data(), gradients.data(), gradients.data() + in.qkv.size()});
}

Gradients gradients_of(const Inputs& in, const ops::Table& table, const std::vector<float>& d_out, const std::vector<int>& cuts) {
  std::vector<float> results = in.from_chain(table, 0, in.shape.queries);
  Gradients gradients(in.qkv.size() + in.keys_values.size());
  for (size_t i = cuts.size() - 1; i-- > 0;) add_gradients(in, table, d_out, results, cuts[i], cuts[i + 1] - cuts[i], gradients);
  return gradients;
}

/// The order that cpu/tensor_core_attention_backward.h states.
Gradients plain_gradients(const Inputs& in, const std::vector<float>& d_out, const std::vector<float>& results) {
  const Case& s = in.shape;
  const int hd = s.head_dim, group = s.heads / s.kv_heads;
  const float scale = float(1.4426950408889634 / std::sqrt(double(hd))), back = 1.0f / std::sqrt(float(hd));
  Gradients gradients(in.qkv.size() + in.keys_values.size());
  struct Pair {
    float weight = 0, d_score = 0;
  };
  const auto pair_of = [&](int i, int head, int key) -> Pair {
    if (i < 0 || i >= s.queries || key > in.places[size_t(i)]) return {};
    const float* d = d_out.data() + (size_t(i) * s.heads + size_t(head)) * size_t(hd);
    float score = 0, d_weight = 0;
    for (int x = 0; x < hd; x += 16) {
      score = tensor_core_sum(score, in.query(i, head) + x, 1, in.key(key, in.kv_of(head)) + x, 1, 16);
      d_weight = tensor_core_sum(d_weight, d + x, 1, in.value(key, in.kv_of(head)) + x, 1, 16);
    }
    float sums[16] = {};
    for (int x = 0; x < hd; ++x) sums[x % 16] = std::fma(results[size_t(d - d_out.data()) + size_t(x)], d[x], sums[x % 16]);
    for (int half = 8; half > 0; half /= 2)
      for (int x = 0; x < half; ++x) sums[x] += sums[x + half];
    const float weight = two_to(std::fma(score, scale, -results[in.out_size() + size_t(i) * s.heads + size_t(head)]));
    return {as_bf16(weight), as_bf16(weight * (d_weight - sums[0]))};
  };
  for (int i = 0; i < s.queries; ++i)
    for (int head = 0; head < s.heads; ++head)
      for (int x = 0; x < hd; ++x) {
        float all = 0;
        for (int span = 0; span <= in.places[size_t(i)]; span += 2048) {
          float sum = 0;
          for (int key = span; key <= std::min(in.places[size_t(i)], span + 2047); key += 16) {
            float d_scores[16] = {}, keys[16] = {};
            for (int k = 0; k < 16 && key + k < s.chain; ++k) {
              d_scores[k] = pair_of(i, head, key + k).d_score;
              keys[k] = in.key(key + k, in.kv_of(head))[x];
            }
            sum = tensor_core_sum(sum, d_scores, 1, keys, 1, 16);
          }
          all += sum;
        }
        gradients[size_t(i) * in.ld_qkv + size_t(head) * size_t(hd) + size_t(x)] = all * back;
      }
  const int offset = s.chain - s.queries;  // place of query 0
  for (int key = 0; key < s.chain; ++key)
    for (int kv = 0; kv < s.kv_heads; ++kv)
      for (int x = 0; x < hd; ++x) {
        float d_key = 0, d_value = 0;
        for (int block = (s.chain - 1) / 64 * 64; block + 63 >= std::max(key, offset); block -= 64) {
          float key_sum = 0, value_sum = 0;
          for (int head = kv * group; head < (kv + 1) * group; ++head)
            for (int place = block; place < block + 64; place += 16) {
              float weights[16], d_scores[16], queries[16] = {}, d_outputs[16] = {};
              for (int q = 0; q < 16; ++q) {
                const int i = place + q - offset;
                const Pair pair = pair_of(i, head, key);
                weights[q] = pair.weight;
                d_scores[q] = pair.d_score;
                if (i < 0 || i >= s.queries) continue;
                queries[q] = in.query(i, head)[x];
                d_outputs[q] = d_out[(size_t(i) * s.heads + size_t(head)) * size_t(hd) + size_t(x)];
              }
              key_sum = tensor_core_sum(key_sum, d_scores, 1, queries, 1, 16);
              value_sum = tensor_core_sum(value_sum, weights, 1, d_outputs, 1, 16);
            }
          d_key = std::fma(key_sum, back, d_key);
          d_value += value_sum;
        }
        const size_t at = in.qkv.size() + size_t(key) * in.ld_keys_values + size_t(kv) * size_t(hd) + size_t(x);
        gradients[at] = d_key;
        gradients[at + size_t(s.kv_heads) * size_t(hd)] = d_value;
      }
  return gradients;
}

void gradients_have_the_bits_of_a_plain_loop() {
  for (const Case shape : {Case{1, 1, 16, 1, 1}, Case{2, 1, 16, 64, 64}, Case{3, 1, 32, 65, 65}, Case{4, 2, 16, 150, 100}, Case{1, 1, 16, 2060, 2}}) {
    const Inputs in(shape);
    const std::vector<float> d_out = bf16_values(in.out_size(), 5, 2);
    const Gradients expected = plain_gradients(in, d_out, in.from_chain(ops::table(ops::Arithmetic::bf16), 0, shape.queries));
    for_each_instruction_set([&](const ops::Table& table) {
      check_same_bits(gradients_of(in, table, d_out, {0, shape.queries}), expected, std::string(table.name) + ", " + shape.name());
    }, ops::Arithmetic::bf16);
  }
}

void gradients_do_not_depend_on_cuts_between_blocks() {
  const Inputs in({4, 2, 32, 300, 280});  // query i has place 20 + i
  const std::vector<float> d_out = bf16_values(in.out_size(), 5, 2);
  const Gradients whole = gradients_of(in, ops::table(ops::Arithmetic::bf16), d_out, {0, 280});
  check_same_bits(gradients_of(in, ops::table(ops::Arithmetic::bf16), d_out, {0, 44, 236, 280}), whole, "cuts at 64 and 256");
}

void gradients_are_close_to_double_precision() {
  for (const Case shape : {Case{3, 1, 48, 65, 65}, Case{4, 2, 64, 130, 40}, Case{1, 1, 16, 2100, 8}}) {
    const Inputs in(shape, 2);
    const int hd = shape.head_dim;
    const std::vector<float> d_out = bf16_values(in.out_size(), 5, 2);
    std::vector<double> expected(in.qkv.size() + in.keys_values.size(), 0.0);
    for (int i = 0; i < shape.queries; ++i)
      for (int head = 0; head < shape.heads; ++head) {
        const int keys = in.places[size_t(i)] + 1, kv = in.kv_of(head);
        const float* d = d_out.data() + (size_t(i) * shape.heads + size_t(head)) * size_t(hd);
        const double scale = 1 / std::sqrt(double(hd));
        std::vector<double> weights, d_weights;
        double total = 0, pull = 0;
        for (int k = 0; k < keys; ++k) {
          double score = 0, d_weight = 0;
          for (int x = 0; x < hd; ++x) {
            score += double(in.query(i, head)[x]) * in.key(k, kv)[x];
            d_weight += double(d[x]) * in.value(k, kv)[x];
          }
          weights.push_back(std::exp(score * scale));
          d_weights.push_back(d_weight);
          total += weights.back();
        }
        for (int k = 0; k < keys; ++k) pull += (weights[size_t(k)] /= total) * d_weights[size_t(k)];
        for (int k = 0; k < keys; ++k) {
          const double d_score = weights[size_t(k)] * (d_weights[size_t(k)] - pull) * scale;
          const size_t key = in.qkv.size() + size_t(k) * in.ld_keys_values + size_t(kv) * size_t(hd);
          for (int x = 0; x < hd; ++x) {
            expected[size_t(i) * in.ld_qkv + size_t(head) * size_t(hd) + size_t(x)] += d_score * in.key(k, kv)[x];
            expected[key + size_t(x)] += d_score * in.query(i, head)[x];
            expected[key + size_t(shape.kv_heads) * size_t(hd) + size_t(x)] += weights[size_t(k)] * d[x];
          }
        }
      }
    check_close(gradients_of(in, ops::table(ops::Arithmetic::bf16), d_out, {0, shape.queries}), expected, 8e-3, shape.name());
  }
}

}  // namespace

int main() {
  return run({{"attention has the bits of a plain loop", attention_has_the_bits_of_a_plain_loop},
              {"a row does not depend on its neighbours", a_row_does_not_depend_on_its_neighbours},
              {"attention is close to double precision", attention_is_close_to_double_precision},
              {"gradients have the bits of a plain loop", gradients_have_the_bits_of_a_plain_loop},
              {"gradients do not depend on cuts between blocks", gradients_do_not_depend_on_cuts_between_blocks},
              {"gradients are close to double precision", gradients_are_close_to_double_precision}});
}
