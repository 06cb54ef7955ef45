// Attention, once over a block-wise cache (sampling) and once over gathered chains (training). Both compute a row the same
// way: scores in panels of 32 keys, softmax over 16 lanes by position, values as one chain over keys in order of position.
// Padding adds exact zeros, so which rows share a panel never shows in the bits.
#pragma once

#include "cpu/gemm_kernels.h"
#include "cpu/scratch.h"
#include "cpu/vec16.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

constexpr int key_block = panel_columns;

inline int key_blocks(int keys) { return (keys + key_block - 1) / key_block; }

inline float score_scale(int head_dim) { return 1.0f / __builtin_sqrtf(float(head_dim)); }

struct SoftmaxRow {
  float inverse_sum;
  float log_sum;  // log Σ exp(score · scale)
};

// scores[0, keys) → exp(scaled score − max), zero up to `padded`; the division by the sum is left to the output row.
inline SoftmaxRow softmax_scores(float* scores, int keys, int padded, float scale) {
  Vec greatest = broadcast(-__builtin_inff());
  int j = 0;
  for (; j + lanes <= keys; j += lanes) greatest = max(greatest, load(scores + j));
  if (j < keys) greatest = max(greatest, load_first(scores + j, keys - j, -__builtin_inff()));
  const float top = maximum(greatest);
  const Vec shift = broadcast(top), factor = broadcast(scale);
  Vec total = zeros();
  for (j = 0; j + lanes <= keys; j += lanes) {
    const Vec e = exponential(mul(sub(load(scores + j), shift), factor));
    store(scores + j, e);
    total = add(total, e);
  }
  if (j < keys) {
    const Vec e =
        keep_first(exponential(mul(sub(load_first(scores + j, keys - j, top), shift), factor)), keys - j);
    store(scores + j, e);
    total = add(total, e);
    j += lanes;
  }
  for (; j < padded; j += lanes) store(scores + j, zeros());
  const float exp_sum = sum(total);
  return {1.0f / exp_sum, top * scale + logarithm(exp_sum)};
}

inline void scale_row(const float* x, float factor, float* y, int n) {
  const Vec f = broadcast(factor);
  for (int i = 0; i < n; i += lanes) store(y + i, mul(load(x + i), f));
}

inline void copy_row(const float* x, float* y, int n) { __builtin_memcpy(y, x, size_t(n) * sizeof(float)); }

inline void add_row(const float* x, float* y, int n) {
  for (int i = 0; i < n; i += lanes) store(y + i, add(load(y + i), load(x + i)));
}

void store_keys_values(const float* qkv, size_t ld_qkv, int rows, const int32_t* positions,
                       const int32_t* const* block_tables, float* cache, size_t block_stride, size_t head_stride,
                       int heads, int kv_heads, int head_dim) {
  for (int i = 0; i < rows; ++i) {
    const int slot = positions[i] % key_block;
    float* block = cache + size_t(block_tables[i][positions[i] / key_block]) * block_stride;
    for (int h = 0; h < kv_heads; ++h) {
      const float* key = qkv + i * ld_qkv + size_t(heads + h) * head_dim;
      const float* value = key + size_t(kv_heads) * head_dim;
      float* keys = block + size_t(h) * head_stride;
      float* values = keys + size_t(head_dim) * key_block;
      for (int d = 0; d < head_dim; ++d) keys[size_t(d) * key_block + slot] = key[d];
      for (int d = 0; d < head_dim; d += panel_columns)
        copy_row(value + d, values + size_t(d) * key_block + size_t(slot) * panel_columns, panel_columns);
    }
  }
}

// Calls fn(block id, first row, last row) for maximal runs of neighbouring rows that all see block b and share it.
template <class Fn>
inline void for_each_run(const PagedAttention& args, int b, Fn&& fn) {
  const int first_position = b * key_block;
  for (int i = 0; i < args.rows;) {
    if (args.positions[i] < first_position) {
      ++i;
      continue;
    }
    const int32_t block = args.block_tables[i][b];
    int j = i + 1;
    while (j < args.rows && args.positions[j] >= first_position && args.block_tables[j][b] == block) ++j;
    fn(block, i, j);
    i = j;
  }
}

void paged_attention(const PagedAttention& args) {
  const int group = args.heads / args.kv_heads, hd = args.head_dim;
  int longest = 0;
  for (int i = 0; i < args.rows; ++i) longest = larger(longest, args.positions[i] + 1);
  const int blocks = key_blocks(longest);
  const size_t ld = size_t(blocks) * key_block;
  const size_t query_rows = size_t(args.rows) * group;
  const float scale = score_scale(hd);
  float* queries = scratch(Scratch::queries, query_rows * hd);
  float* scores = scratch(Scratch::scores, query_rows * ld);
  float* outputs = scratch(Scratch::outputs, query_rows * hd);
  float* inverse_sums = scratch(Scratch::sums, query_rows);

  for (int kv = 0; kv < args.kv_heads; ++kv) {
    for (int i = 0; i < args.rows; ++i)
      copy_row(args.qkv + i * args.ld_qkv + size_t(kv) * group * hd, queries + size_t(i) * group * hd, group * hd);
    for (int b = 0; b < blocks; ++b)
      for_each_run(args, b, [&](int32_t block, int first, int last) {
        const float* keys = args.cache + size_t(block) * args.block_stride + size_t(kv) * args.head_stride;
        panel_product(queries + size_t(first) * group * hd, hd, 1, keys, hd,
                      scores + size_t(first) * group * ld + size_t(b) * key_block, ld, (last - first) * group, false);
      });
    for (int i = 0; i < args.rows; ++i)
      for (int h = 0; h < group; ++h) {
        const size_t row = size_t(i) * group + h;
        inverse_sums[row] = softmax_scores(scores + row * ld, args.positions[i] + 1, int(ld), scale).inverse_sum;
      }
    for (int b = 0; b < blocks; ++b)
      for_each_run(args, b, [&](int32_t block, int first, int last) {
        const float* values = args.cache + size_t(block) * args.block_stride + size_t(kv) * args.head_stride +
                              size_t(hd) * key_block;
        int seen = 0;
        for (int i = first; i < last; ++i) seen = larger(seen, args.positions[i] + 1 - b * key_block);
        for (int d = 0; d < hd; d += panel_columns)
          panel_product(scores + size_t(first) * group * ld + size_t(b) * key_block, ld, 1, values + size_t(d) * key_block,
                        smaller(seen, key_block), outputs + size_t(first) * group * hd + d, hd, (last - first) * group,
                        b > 0);
      });
    for (int i = 0; i < args.rows; ++i)
      for (int h = 0; h < group; ++h) {
        const size_t row = size_t(i) * group + h;
        scale_row(outputs + row * hd, inverse_sums[row],
                  args.out + (size_t(i) * args.heads + size_t(kv) * group + h) * hd, hd);
      }
  }
}

// Rows of queries whose scores fit the caches: a node is worked on in slices of this many rows.
constexpr int chain_slice = 48;

// Keys or values of a chain: `transposed` is [blocks][head_dim][32 keys], `rows` is [head_dim / 32][keys][32].
inline void gather_transposed(const ChainAttention& args, size_t column, float* out) {
  const int hd = args.head_dim;
  for (int b = 0; b < key_blocks(args.chain_length); ++b) {
    float* panel = out + size_t(b) * hd * key_block;
    const int count = smaller(key_block, args.chain_length - b * key_block);
    for (int j = 0; j < count; ++j) {
      const float* row = args.qkv + size_t(args.chain_rows[b * key_block + j]) * args.ld_qkv + column;
      for (int d = 0; d < hd; ++d) panel[size_t(d) * key_block + j] = row[d];
    }
    for (int j = count; j < key_block; ++j)
      for (int d = 0; d < hd; ++d) panel[size_t(d) * key_block + j] = 0.0f;
  }
}

inline void gather_rows(const ChainAttention& args, size_t column, float* out) {
  for (int d = 0; d < args.head_dim; d += panel_columns)
    for (int j = 0; j < args.chain_length; ++j)
      copy_row(args.qkv + size_t(args.chain_rows[j]) * args.ld_qkv + column + d,
               out + (size_t(d / panel_columns) * args.chain_length + j) * panel_columns, panel_columns);
}

// x[rows, head_dim] as panels of 32 columns: [head_dim / 32][rows][32].
inline void split_panels(const float* x, int rows, int head_dim, float* out) {
  for (int d = 0; d < head_dim; d += panel_columns)
    for (int i = 0; i < rows; ++i)
      copy_row(x + size_t(i) * head_dim + d, out + (size_t(d / panel_columns) * rows + i) * panel_columns, panel_columns);
}

// Some consecutive queries of a chain.
struct QuerySlice {
  const int32_t* places;
  const int32_t* outputs;
  int count;
  int seen;  // keys that the last of them sees

  QuerySlice(const ChainAttention& args, int first)
      : places(args.query_places + first),
        outputs(args.query_outputs + first),
        count(smaller(chain_slice, args.queries - first)),
        seen(places[count - 1] + 1) {}
};

void chain_attention(const ChainAttention& args) {
  const int group = args.heads / args.kv_heads, hd = args.head_dim;
  const size_t whole = size_t(key_blocks(args.chain_length)) * key_block;
  const float scale = score_scale(hd);
  float* keys = scratch(Scratch::keys_panels, whole * hd);
  float* values = scratch(Scratch::values_rows, whole * hd);
  float* queries = scratch(Scratch::queries, size_t(chain_slice) * group * hd);
  float* scores = scratch(Scratch::scores, size_t(chain_slice) * group * whole);
  float* outputs = scratch(Scratch::outputs, size_t(chain_slice) * group * hd);
  float* inverse_sums = scratch(Scratch::sums, size_t(chain_slice) * group);

  for (int kv = 0; kv < args.kv_heads; ++kv) {
    gather_transposed(args, size_t(args.heads + kv) * hd, keys);
    gather_rows(args, size_t(args.heads + args.kv_heads + kv) * hd, values);
    for (int first = 0; first < args.queries; first += chain_slice) {
      const QuerySlice slice(args, first);
      const int count = slice.count, rows = count * group, seen = slice.seen, blocks = key_blocks(seen);
      const size_t ld = size_t(blocks) * key_block;
      for (int i = 0; i < count; ++i)
        copy_row(args.qkv + size_t(args.chain_rows[slice.places[i]]) * args.ld_qkv + size_t(kv) * group * hd,
                 queries + size_t(i) * group * hd, group * hd);
      for (int b = 0; b < blocks; ++b)
        panel_product(queries, hd, 1, keys + size_t(b) * hd * key_block, hd, scores + size_t(b) * key_block, ld, rows, false);
      for (int i = 0; i < count; ++i)
        for (int h = 0; h < group; ++h) {
          const size_t row = size_t(i) * group + h;
          const SoftmaxRow softmax = softmax_scores(scores + row * ld, slice.places[i] + 1, int(ld), scale);
          inverse_sums[row] = softmax.inverse_sum;
          if (args.log_sums) args.log_sums[size_t(slice.outputs[i]) * args.heads + kv * group + h] = softmax.log_sum;
        }
      for (int d = 0; d < hd; d += panel_columns)
        panel_product(scores, ld, 1, values + size_t(d) * args.chain_length, seen, outputs + d, hd, rows, false);
      for (int i = 0; i < count; ++i)
        for (int h = 0; h < group; ++h) {
          const size_t row = size_t(i) * group + h;
          scale_row(outputs + row * hd, inverse_sums[row],
                    args.out + (size_t(slice.outputs[i]) * args.heads + size_t(kv) * group + h) * hd, hd);
        }
    }
  }
}

// scores → probabilities, d_probabilities → gradients of the unscaled scores; zero past the row's keys.
inline void softmax_backward(float* scores, float* d_scores, int keys, int padded, float scale, float log_sum, float pull) {
  const Vec factor = broadcast(scale), shift = broadcast(log_sum), projection = broadcast(pull);
  for (int j = 0; j < padded; j += lanes) {
    if (j >= keys) {
      store(scores + j, zeros());
      store(d_scores + j, zeros());
      continue;
    }
    Vec p = exponential(sub(mul(load(scores + j), factor), shift));
    Vec d = mul(mul(p, factor), sub(load(d_scores + j), projection));
    if (keys - j < lanes) {
      p = keep_first(p, keys - j);
      d = keep_first(d, keys - j);
    }
    store(scores + j, p);
    store(d_scores + j, d);
  }
}

void chain_attention_backward(const ChainAttentionBackward& backward) {
  const ChainAttention& args = backward.forward;
  const int group = args.heads / args.kv_heads, hd = args.head_dim;
  const size_t whole = size_t(key_blocks(args.chain_length)) * key_block, slice_rows = size_t(chain_slice) * group;
  const size_t out_width = size_t(args.heads) * hd;
  const float scale = score_scale(hd);
  float* keys = scratch(Scratch::keys_panels, whole * hd);
  float* key_rows = scratch(Scratch::keys_rows, whole * hd);
  float* values = scratch(Scratch::values_panels, whole * hd);
  float* queries = scratch(Scratch::queries, slice_rows * hd);
  float* query_panels = scratch(Scratch::d_queries, slice_rows * hd);
  float* scores = scratch(Scratch::scores, slice_rows * whole);
  float* d_scores = scratch(Scratch::d_scores, slice_rows * whole);
  float* d_outputs = scratch(Scratch::outputs, slice_rows * hd);
  float* d_output_panels = scratch(Scratch::d_outputs, slice_rows * hd);
  float* d_queries = scratch(Scratch::values_rows, slice_rows * hd);
  float* d_keys = scratch(Scratch::d_keys, whole * hd);
  float* d_values = scratch(Scratch::d_values, whole * hd);

  for (int kv = 0; kv < args.kv_heads; ++kv) {
    const size_t key_column = size_t(args.heads + kv) * hd, value_column = key_column + size_t(args.kv_heads) * hd;
    gather_transposed(args, key_column, keys);
    gather_rows(args, key_column, key_rows);
    gather_transposed(args, value_column, values);
    int touched = 0;
    for (int first = 0; first < args.queries; first += chain_slice) {
      const QuerySlice slice(args, first);
      const int count = slice.count, rows = count * group, seen = slice.seen, blocks = key_blocks(seen);
      const size_t ld = size_t(blocks) * key_block;
      const size_t head_column = size_t(kv) * group * hd;
      for (int i = 0; i < count; ++i) {
        copy_row(args.qkv + size_t(args.chain_rows[slice.places[i]]) * args.ld_qkv + head_column,
                 queries + size_t(i) * group * hd, group * hd);
        copy_row(backward.d_out + size_t(slice.outputs[i]) * out_width + head_column, d_outputs + size_t(i) * group * hd,
                 group * hd);
      }
      for (int b = 0; b < blocks; ++b) {
        panel_product(queries, hd, 1, keys + size_t(b) * hd * key_block, hd, scores + size_t(b) * key_block, ld, rows, false);
        panel_product(d_outputs, hd, 1, values + size_t(b) * hd * key_block, hd, d_scores + size_t(b) * key_block, ld, rows,
                      false);
      }
      for (int i = 0; i < count; ++i)
        for (int h = 0; h < group; ++h) {
          const size_t row = size_t(i) * group + h;
          const size_t head = size_t(slice.outputs[i]) * args.heads + kv * group + h;
          const float pull = dot(args.out + head * hd, d_outputs + row * hd, hd);
          softmax_backward(scores + row * ld, d_scores + row * ld, slice.places[i] + 1, int(ld), scale,
                           args.log_sums[head], pull);
        }
      split_panels(queries, rows, hd, query_panels);
      split_panels(d_outputs, rows, hd, d_output_panels);
      // A slice sees more keys than those before it did; the gradients of the new ones start at zero.
      for (size_t j = size_t(touched) * hd; j < size_t(seen) * hd; ++j) d_keys[j] = d_values[j] = 0.0f;
      touched = seen;
      for (int d = 0; d < hd; d += panel_columns) {
        const size_t panel = size_t(d / panel_columns) * rows * panel_columns;
        panel_product(d_scores, ld, 1, key_rows + size_t(d) * args.chain_length, seen, d_queries + d, hd, rows, false);
        panel_product(d_scores, 1, ld, query_panels + panel, rows, d_keys + d, hd, seen, true);
        panel_product(scores, 1, ld, d_output_panels + panel, rows, d_values + d, hd, seen, true);
      }
      for (int i = 0; i < count; ++i)
        add_row(d_queries + size_t(i) * group * hd, backward.d_qkv + size_t(args.chain_rows[slice.places[i]]) * args.ld_qkv + head_column, group * hd);
    }
    for (int j = 0; j < touched; ++j) {
      float* row = backward.d_qkv + size_t(args.chain_rows[j]) * args.ld_qkv;
      add_row(d_keys + size_t(j) * hd, row + key_column, hd);
      add_row(d_values + size_t(j) * hd, row + value_column, hd);
    }
  }
}

}  // namespace
}  // namespace longhaul::ops
