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
    table.tensor_core_chain_attention({qkv.data(), ld_qkv, keys_values.data(), ld_keys_values, chain_rows.data(), shape.chain,
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
    table.tensor_core_paged_attention({qkv.data(), ld_qkv, shape.queries, places.data(), tables.data(), cache.data(), block_stride,
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
    });
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
    });
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
    std::vector<float> results = in.from_chain(ops::table(), 0, shape.queries);
    const std::vector<float> found(results.begin() + std::ptrdiff_t(out.size()), results.end());
    results.resize(out.size());
    check_close(results, out, 8e-3, shape.name());  // twice bf16's precision
    check_close(found, log_sums, 1e-5, shape.name() + ", log-sums");
  }
}

}  // namespace

int main() {
  return run({{"attention has the bits of a plain loop", attention_has_the_bits_of_a_plain_loop},
              {"a row does not depend on its neighbours", a_row_does_not_depend_on_its_neighbours},
              {"attention is close to double precision", attention_is_close_to_double_precision}});
}
