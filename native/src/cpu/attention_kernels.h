// Attention over a block-wise cache (sampling) and over gathered chains (training). Both compute a row the same way: scores in panels of 32
// keys, softmax over 16 lanes by position, values as one chain over keys in order of position. Padding adds exact zeros: the bits do not
// depend on which rows share a panel, and a product may skip keys that are masked for all of its rows.
#pragma once

#include "cpu/gemm_kernels.h"
#include "cpu/scratch.h"
#include "cpu/transpose.h"
#include "cpu/vec16.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

constexpr int key_block = panel_columns;

inline int key_blocks(int keys) { return (keys + key_block - 1) / key_block; }

/// A head's width in whole panels.
inline int padded_width(int head_dim) { return panel_count(head_dim) * panel_columns; }

inline float score_scale(int head_dim) { return 1.0f / __builtin_sqrtf(float(head_dim)); }

struct SoftmaxRow {
  float inverse_sum;
  float log_sum;  // log Σ exp(score · scale)
};

// scores[0, keys) → exp(scaled score − max), zero up to `padded`. The caller divides the output row by the sum.
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

// Copies x [width] into panels of 32 columns, `panel_stride` floats apart, zero past `width` (a multiple of 16).
inline void split_row(const float* x, int width, float* out, size_t panel_stride) {
  for (int d = 0; d < width; d += panel_columns, out += panel_stride) {
    const int count = smaller(panel_columns, width - d);
    copy_row(x + d, out, count);
    if (count < panel_columns) store(out + count, zeros());
  }
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
      split_row(value, head_dim, values + size_t(slot) * panel_columns, size_t(key_block) * panel_columns);
    }
  }
}

// Calls fn(block id, first row, last row, next run's block id) for each maximal run of neighbouring rows that share block b and see it. The
// blocks of two runs may lie far apart, so the product with one block prefetches the next.
template <class Fn>
inline void for_each_run(const PagedAttention& args, int b, Fn&& fn) {
  const int first_position = b * key_block;
  int32_t run_block = -1;
  int run_first = 0, run_last = 0;
  for (int i = 0; i < args.rows;) {
    if (args.positions[i] < first_position) {
      ++i;
      continue;
    }
    const int32_t block = args.block_tables[i][b];
    int j = i + 1;
    while (j < args.rows && args.positions[j] >= first_position && args.block_tables[j][b] == block) ++j;
    if (run_block >= 0) fn(run_block, run_first, run_last, block);
    run_block = block;
    run_first = i;
    run_last = i = j;
  }
  if (run_block >= 0) fn(run_block, run_first, run_last, run_block);
}

void paged_attention(const PagedAttention& args) {
  const int group = args.heads / args.kv_heads, hd = args.head_dim, width = padded_width(hd);
  int longest = 0;
  for (int i = 0; i < args.rows; ++i) longest = larger(longest, args.positions[i] + 1);
  const int blocks = key_blocks(longest);
  const size_t ld = size_t(blocks) * key_block;
  const size_t query_rows = size_t(args.rows) * group;
  const float scale = score_scale(hd);
  float* queries = scratch(Scratch::queries, query_rows * hd);
  float* scores = scratch(Scratch::scores, query_rows * ld);
  float* outputs = scratch(Scratch::outputs, query_rows * width);
  float* inverse_sums = scratch(Scratch::sums, query_rows);

  for (int kv = 0; kv < args.kv_heads; ++kv) {
    for (int i = 0; i < args.rows; ++i)
      copy_row(args.qkv + i * args.ld_qkv + size_t(kv) * group * hd, queries + size_t(i) * group * hd, group * hd);
    for (int b = 0; b < blocks; ++b)
      for_each_run(args, b, [&](int32_t block, int first, int last, int32_t next) {
        const float* keys = args.cache + size_t(block) * args.block_stride + size_t(kv) * args.head_stride;
        const float* next_keys = args.cache + size_t(next) * args.block_stride + size_t(kv) * args.head_stride;
        panel_product<Order::by_row>(queries + size_t(first) * group * hd, hd, keys, hd,
                                     scores + size_t(first) * group * ld + size_t(b) * key_block, ld,
                                     (last - first) * group, false, next_keys);
      });
    for (int i = 0; i < args.rows; ++i)
      for (int h = 0; h < group; ++h) {
        const size_t row = size_t(i) * group + h;
        inverse_sums[row] = softmax_scores(scores + row * ld, args.positions[i] + 1, int(ld), scale).inverse_sum;
      }
    for (int b = 0; b < blocks; ++b)
      for_each_run(args, b, [&](int32_t block, int first, int last, int32_t next) {
        const size_t head = size_t(kv) * args.head_stride + size_t(hd) * key_block;
        const float* values = args.cache + size_t(block) * args.block_stride + head;
        const float* next_values = args.cache + size_t(next) * args.block_stride + head;
        int seen = 0;
        for (int i = first; i < last; ++i) seen = larger(seen, args.positions[i] + 1 - b * key_block);
        for (int d = 0; d < width; d += panel_columns)
          panel_product<Order::by_row>(scores + size_t(first) * group * ld + size_t(b) * key_block, ld,
                                       values + size_t(d) * key_block, smaller(seen, key_block),
                                       outputs + size_t(first) * group * width + d, width, (last - first) * group, b > 0,
                                       next_values + size_t(d) * key_block);
      });
    for (int i = 0; i < args.rows; ++i)
      for (int h = 0; h < group; ++h) {
        const size_t row = size_t(i) * group + h;
        scale_row(outputs + row * width, inverse_sums[row],
                  args.out + (size_t(i) * args.heads + size_t(kv) * group + h) * hd, hd);
      }
  }
}

// A node's queries are processed in slices, so that their scores fit the caches. Products with values take a slice in chunks, each with the
// keys that the chunk's last query sees.
constexpr int query_chunk = 16, most_slice_rows = 96, score_budget = 128 * 1024;

inline int slice_queries(int group, int keys) {
  const int rows = smaller(most_slice_rows, score_budget / (key_blocks(keys) * key_block));
  return larger(1, rows / group / query_chunk) * query_chunk;
}

// The number of keys that any query of the node sees.
inline int keys_seen(const ChainAttention& args) { return args.query_places[args.queries - 1] + 1; }

// Keys or values of a chain as the right-hand side of a product over the head's width: [blocks][head_dim][32 keys].
inline void gather_transposed(const ChainAttention& args, size_t column, int keys, float* out) {
  const int hd = args.head_dim;
  for (int b = 0; b < key_blocks(keys); ++b) {
    float* panel = out + size_t(b) * hd * key_block;
    const int count = smaller(key_block, keys - b * key_block);
    const float* rows[key_block];
    for (int j = 0; j < count; ++j)
      rows[j] = args.keys_values + size_t(args.chain_rows[b * key_block + j]) * args.ld_keys_values + column;
    rows_to_panel(rows, count, hd, panel);
    for (int j = count; j < key_block; ++j)
      for (int d = 0; d < hd; ++d) panel[size_t(d) * key_block + j] = 0.0f;
  }
}

// The same keys or values as the right-hand side of a product over keys: [⌈head_dim / 32⌉][keys][32].
inline void gather_rows(const ChainAttention& args, size_t column, int keys, float* out) {
  for (int j = 0; j < keys; ++j)
    split_row(args.keys_values + size_t(args.chain_rows[j]) * args.ld_keys_values + column, args.head_dim,
              out + size_t(j) * panel_columns, size_t(keys) * panel_columns);
}

// x[rows, head_dim] as panels of 32 columns: [⌈head_dim / 32⌉][rows][32].
inline void split_panels(const float* x, int rows, int head_dim, float* out) {
  for (int i = 0; i < rows; ++i)
    split_row(x + size_t(i) * head_dim, head_dim, out + size_t(i) * panel_columns, size_t(rows) * panel_columns);
}

// Some consecutive queries of a chain. A row stands for one query and one of the heads that share keys.
struct QuerySlice {
  const int32_t* places;
  const int32_t* query_rows;
  const int32_t* outputs;
  int count, group, rows;
  int seen;  // number of keys that the last query sees

  QuerySlice(const ChainAttention& args, int group_size, int first, int most)
      : places(args.query_places + first),
        query_rows(args.query_rows + first),
        outputs(args.query_outputs + first),
        count(smaller(most, args.queries - first)),
        group(group_size),
        rows(count * group_size),
        seen(places[count - 1] + 1) {}

  /// The first row that sees any key of block b.
  int first_row(int b) const {
    int i = 0;
    while (i < count && places[i] < b * key_block) ++i;
    return i * group;
  }

  /// Calls fn(first row, rows, number of keys that the last query sees) for each chunk of queries.
  template <class Fn>
  void each_chunk(Fn&& fn) const {
    for (int i = 0; i < count; i += query_chunk) {
      const int here = smaller(query_chunk, count - i);
      fn(i * group, here * group, places[i + here - 1] + 1);
    }
  }

  void gather_queries(const ChainAttention& args, int kv, float* queries) const {
    const size_t width = size_t(group) * args.head_dim;
    for (int i = 0; i < count; ++i)
      copy_row(args.qkv + size_t(query_rows[i]) * args.ld_qkv + kv * width, queries + i * width, int(width));
  }
};

void chain_attention(const ChainAttention& args) {
  if (args.queries == 0) return;
  const int group = args.heads / args.kv_heads, hd = args.head_dim, width = padded_width(hd), all_keys = keys_seen(args),
            most = slice_queries(group, all_keys);
  const size_t whole = size_t(key_blocks(all_keys)) * key_block, slice_rows = size_t(most) * group;
  const float scale = score_scale(hd);
  float* keys = scratch(Scratch::keys_panels, whole * hd);
  float* values = scratch(Scratch::values_rows, whole * width);
  float* queries = scratch(Scratch::queries, slice_rows * hd);
  float* scores = scratch(Scratch::scores, slice_rows * whole);
  float* outputs = scratch(Scratch::outputs, slice_rows * width);
  float* inverse_sums = scratch(Scratch::sums, slice_rows);

  for (int kv = args.first_kv_head; kv < args.last_kv_head; ++kv) {
    gather_transposed(args, size_t(kv) * hd, all_keys, keys);
    gather_rows(args, size_t(args.kv_heads + kv) * hd, all_keys, values);
    for (int first = 0; first < args.queries; first += most) {
      const QuerySlice slice(args, group, first, most);
      const size_t ld = size_t(key_blocks(slice.seen)) * key_block;
      slice.gather_queries(args, kv, queries);
      for (int b = 0; b < key_blocks(slice.seen); ++b) {
        const int row = slice.first_row(b);
        panel_product<Order::by_row>(queries + size_t(row) * hd, hd, keys + size_t(b) * hd * key_block, hd,
                                     scores + size_t(row) * ld + size_t(b) * key_block, ld, slice.rows - row, false);
      }
      for (int i = 0; i < slice.count; ++i)
        for (int h = 0; h < group; ++h) {
          const size_t row = size_t(i) * group + h;
          const SoftmaxRow softmax = softmax_scores(scores + row * ld, slice.places[i] + 1, int(ld), scale);
          inverse_sums[row] = softmax.inverse_sum;
          if (args.log_sums) args.log_sums[size_t(slice.outputs[i]) * args.heads + kv * group + h] = softmax.log_sum;
        }
      slice.each_chunk([&](int row, int rows, int seen) {
        for (int d = 0; d < width; d += panel_columns)
          panel_product<Order::by_row>(scores + size_t(row) * ld, ld, values + size_t(d) * all_keys, seen,
                                       outputs + size_t(row) * width + d, width, rows, false);
      });
      for (int i = 0; i < slice.count; ++i)
        for (int h = 0; h < group; ++h) {
          const size_t row = size_t(i) * group + h;
          scale_row(outputs + row * width, inverse_sums[row],
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

// The gradient of a key or value is one chain: over the node's queries in order and, for each query, over its heads in order. A slice
// continues the chain of the slice before it, so the slice size does not change the bits. The result is added to `d_keys_values` once.
void chain_attention_backward(const ChainAttentionBackward& backward) {
  const ChainAttention& args = backward.forward;
  if (args.queries == 0) return;
  const int group = args.heads / args.kv_heads, hd = args.head_dim, width = padded_width(hd), all_keys = keys_seen(args),
            most = slice_queries(group, all_keys);
  const size_t whole = size_t(key_blocks(all_keys)) * key_block, slice_rows = size_t(most) * group;
  const size_t out_width = size_t(args.heads) * hd;
  const float scale = score_scale(hd);
  float* keys = scratch(Scratch::keys_panels, whole * hd);
  float* key_rows = scratch(Scratch::keys_rows, whole * width);
  float* values = scratch(Scratch::values_panels, whole * hd);
  float* queries = scratch(Scratch::queries, slice_rows * hd);
  float* query_panels = scratch(Scratch::d_queries, slice_rows * width);
  float* scores = scratch(Scratch::scores, slice_rows * whole);
  float* d_scores = scratch(Scratch::d_scores, slice_rows * whole);
  float* d_outputs = scratch(Scratch::outputs, slice_rows * hd);
  float* d_output_panels = scratch(Scratch::d_outputs, slice_rows * width);
  float* d_queries = scratch(Scratch::values_rows, slice_rows * width);
  float* d_keys = scratch(Scratch::d_keys, whole * width);
  float* d_values = scratch(Scratch::d_values, whole * width);

  for (int kv = args.first_kv_head; kv < args.last_kv_head; ++kv) {
    const size_t key_column = size_t(kv) * hd, value_column = size_t(args.kv_heads + kv) * hd,
                 head_column = size_t(kv) * group * hd;
    gather_transposed(args, key_column, all_keys, keys);
    gather_rows(args, key_column, all_keys, key_rows);
    gather_transposed(args, value_column, all_keys, values);
    int touched = 0;
    for (int first = 0; first < args.queries; first += most) {
      const QuerySlice slice(args, group, first, most);
      const size_t ld = size_t(key_blocks(slice.seen)) * key_block;
      slice.gather_queries(args, kv, queries);
      for (int i = 0; i < slice.count; ++i)
        copy_row(backward.d_out + size_t(slice.outputs[i]) * out_width + head_column, d_outputs + size_t(i) * group * hd,
                 group * hd);
      for (int b = 0; b < key_blocks(slice.seen); ++b) {
        const int row = slice.first_row(b);
        const size_t panel = size_t(b) * hd * key_block, corner = size_t(row) * ld + size_t(b) * key_block;
        panel_product<Order::by_row>(queries + size_t(row) * hd, hd, keys + panel, hd, scores + corner, ld,
                                     slice.rows - row, false);
        panel_product<Order::by_row>(d_outputs + size_t(row) * hd, hd, values + panel, hd, d_scores + corner, ld,
                                     slice.rows - row, false);
      }
      for (int i = 0; i < slice.count; ++i)
        for (int h = 0; h < group; ++h) {
          const size_t row = size_t(i) * group + h;
          const size_t head = size_t(slice.outputs[i]) * args.heads + kv * group + h;
          const float pull = dot(args.out + head * hd, d_outputs + row * hd, hd);
          softmax_backward(scores + row * ld, d_scores + row * ld, slice.places[i] + 1, int(ld), scale,
                           args.log_sums[head], pull);
        }
      slice.each_chunk([&](int row, int rows, int seen) {
        for (int d = 0; d < width; d += panel_columns)
          panel_product<Order::by_row>(d_scores + size_t(row) * ld, ld, key_rows + size_t(d) * all_keys, seen,
                                       d_queries + size_t(row) * width + d, width, rows, false);
      });
      for (int i = 0; i < slice.count; ++i)
        for (int h = 0; h < group; ++h)
          add_row(d_queries + (size_t(i) * group + h) * width,
                  backward.d_queries + size_t(slice.query_rows[i]) * args.ld_qkv + head_column + size_t(h) * hd, hd);

      split_panels(queries, slice.rows, hd, query_panels);
      split_panels(d_outputs, slice.rows, hd, d_output_panels);
      // A slice sees more keys than the slices before it; the gradients of the new keys start at zero.
      for (size_t j = size_t(touched) * width; j < size_t(slice.seen) * width; j += lanes) {
        store(d_keys + j, zeros());
        store(d_values + j, zeros());
      }
      touched = slice.seen;
      for (int b = 0; b < key_blocks(slice.seen); ++b) {
        const int row = slice.first_row(b), rows = slice.rows - row, here = smaller(key_block, slice.seen - b * key_block);
        const size_t corner = size_t(row) * ld + size_t(b) * key_block, key = size_t(b) * key_block * width;
        for (int d = 0; d < width; d += panel_columns) {
          const size_t panel = size_t(d) * slice.rows + size_t(row) * panel_columns;
          panel_product<Order::by_depth>(d_scores + corner, ld, query_panels + panel, rows, d_keys + key + d, width, here, true);
          panel_product<Order::by_depth>(scores + corner, ld, d_output_panels + panel, rows, d_values + key + d, width, here,
                                         true);
        }
      }
    }
    for (int j = 0; j < touched; ++j) {
      float* row = backward.d_keys_values + size_t(args.chain_rows[j]) * args.ld_keys_values;
      add_row(d_keys + size_t(j) * width, row + key_column, hd);
      add_row(d_values + size_t(j) * width, row + value_column, hd);
    }
  }
}

}  // namespace
}  // namespace longhaul::ops
