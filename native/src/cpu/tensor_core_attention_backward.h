// The backward pass of attention on the sums of an H100's tensor cores. Queries go in blocks of 64 by place in their chain, keys in blocks of 64
// by position:
// - A weight is 2^(score · scale − log-sum), 0 where the query does not see the key; its gradient is the chain d_out · value over head_dim;
//   the gradient of its score is weight · (that − Σ d_out · out). Weight and score's gradient are rounded to bf16.
// - d_query: one chain over the keys of a span (2,048), spans added in ascending order; then · 1 / √head_dim.
// - d_key and d_value: blocks of queries are added from the last to the first, each block as one chain: over the heads that share the key, then
//   over the block's queries in sixteens. (Backward passes go from the last rows to the first, so passes may be cut at any block.)
#pragma once

#include "cpu/tensor_core_attention.h"

namespace longhaul::ops {
namespace {

/// Up to 64 queries of one head: row j has place `first` + j in the chain.
struct QueryBlock {
  int first = 0;
  int seen = 0;                // keys that the last query sees
  int index[attention_block];  // of the query in `ChainAttention`; −1: none has this place

  QueryBlock(const ChainAttention& args, int last_query) : first(args.query_places[last_query] / attention_block * attention_block) {
    for (int& i : index) i = -1;
    seen = args.query_places[last_query] + 1;
    for (int i = last_query; i >= 0 && args.query_places[i] >= first; --i) index[args.query_places[i] - first] = i;
  }

  int queries() const {
    int count = 0;
    for (const int i : index) count += i >= 0;
    return count;
  }
};

/// Rows [64, head_dim], zero where the block has no query, and the same as panels [64, head_dim].
struct BlockRows {
  float* rows;
  float* panels;

  template <class RowOf>
  void gather(const QueryBlock& block, int head_dim, RowOf&& row_of) const {
    __builtin_memset(rows, 0, size_t(attention_block) * size_t(head_dim) * sizeof(float));
    __builtin_memset(panels, 0, size_t(attention_block) * size_t(padded_width(head_dim)) * sizeof(float));
    for (int j = 0; j < attention_block; ++j) {
      if (block.index[j] < 0) continue;
      copy_row(row_of(block.index[j]), rows + j * head_dim, head_dim);
      put_row(rows + j * head_dim, head_dim, panels, j);
    }
  }
};

/// Of keys or values: as columns [head_dim, 64] and as rows [64, head_dim], in panels; zero past `count`.
struct BlockPanels {
  float* columns;
  float* rows;

  void gather(const ChainAttention& args, size_t column, int first, int count) const {
    const int hd = args.head_dim;
    const float* from[attention_block];
    __builtin_memset(columns, 0, size_t(hd) * attention_block * sizeof(float));
    __builtin_memset(rows, 0, size_t(attention_block) * size_t(padded_width(hd)) * sizeof(float));
    for (int j = 0; j < count; ++j) {
      from[j] = args.keys_values + size_t(args.chain_rows[first + j]) * args.ld_keys_values + column;
      put_row(from[j], hd, rows, j);
    }
    for (int j = 0; j < count; j += panel_columns)
      rows_to_panel(from + j, smaller(panel_columns, count - j), hd, columns + size_t(j) * size_t(hd));
  }
};

/// c [64, columns] (+)= a · panels, a [64, depth] or its transpose
inline void block_product(const float* a, bool transposed, int depth, const float* panels, int columns, float* c, bool accumulate) {
  const size_t ld = size_t(transposed ? attention_block : depth);
  compute_chains({a, transposed ? 1 : ld, transposed ? ld : 1, panels, depth, columns, c, size_t(columns), accumulate}, attention_block);
}

// `log_sums` have base 2. Adds to d_queries and d_keys_values.
void tensor_core_chain_attention_backward(const ChainAttentionBackward& backward) {
  const ChainAttention& args = backward.forward;
  const int hd = args.head_dim, group = args.heads / args.kv_heads;
  const size_t block_floats = size_t(attention_block) * size_t(hd), panel_floats = size_t(attention_block) * size_t(padded_width(hd)),
               head_floats = block_floats + panel_floats, out_width = size_t(args.heads) * size_t(hd);
  const float scale = float(1.4426950408889634 / __builtin_sqrt(double(hd))), back = score_scale(hd);
  float* queries = scratch(Scratch::queries, size_t(group) * head_floats);
  float* d_outputs = scratch(Scratch::d_outputs, size_t(group) * head_floats);
  float* key_space = scratch(Scratch::keys_panels, block_floats + panel_floats);
  float* value_space = scratch(Scratch::values_panels, block_floats + panel_floats);
  float* d_queries = scratch(Scratch::d_queries, 2 * size_t(group) * block_floats);  // of a span, then of all before it
  float* d_keys = scratch(Scratch::d_keys, block_floats);
  float* d_values = scratch(Scratch::d_values, block_floats);
  float* pulls = scratch(Scratch::sums, size_t(group) * attention_block);  // Σ d_out · out
  alignas(64) float weights[attention_block * attention_block], d_scores[attention_block * attention_block];
  const BlockPanels keys{key_space, key_space + block_floats}, values{value_space, value_space + block_floats};
  const auto head_of = [&](float* all, int h) {
    float* rows = all + size_t(h) * head_floats;
    return BlockRows{rows, rows + block_floats};
  };

  for (int kv = args.first_kv_head; kv < args.last_kv_head; ++kv)
    for (int last = args.queries - 1; last >= 0;) {
      const QueryBlock block(args, last);
      last -= block.queries();
      for (int h = 0; h < group; ++h) {
        const size_t column = (size_t(kv) * size_t(group) + size_t(h)) * size_t(hd);
        head_of(queries, h).gather(block, hd, [&](int i) { return args.qkv + size_t(args.query_rows[i]) * args.ld_qkv + column; });
        const BlockRows d_output = head_of(d_outputs, h);
        d_output.gather(block, hd, [&](int i) { return backward.d_out + size_t(args.query_outputs[i]) * out_width + column; });
        for (int j = 0; j < attention_block; ++j)
          if (const int i = block.index[j]; i >= 0)
            pulls[h * attention_block + j] = dot(args.out + size_t(args.query_outputs[i]) * out_width + column, d_output.rows + j * hd, hd);
      }
      __builtin_memset(d_queries, 0, 2 * size_t(group) * block_floats * sizeof(float));
      float* before = d_queries + size_t(group) * block_floats;
      const auto end_span = [&] {
        for (size_t x = 0; x < size_t(group) * block_floats; x += lanes) {
          store(before + x, add(load(before + x), load(d_queries + x)));
          store(d_queries + x, zeros());
        }
      };

      for (int first = 0; first < block.seen; first += attention_block) {
        const int count = smaller(attention_block, block.seen - first);
        if (first > 0 && first % attention_span == 0) end_span();
        keys.gather(args, size_t(kv) * size_t(hd), first, count);
        values.gather(args, size_t(args.kv_heads + kv) * size_t(hd), first, count);
        for (int h = 0; h < group; ++h) {
          const BlockRows query = head_of(queries, h), d_output = head_of(d_outputs, h);
          block_product(query.rows, false, hd, keys.columns, attention_block, weights, false);
          block_product(d_output.rows, false, hd, values.columns, attention_block, d_scores, false);
          for (int j = 0; j < attention_block; ++j) {
            float* weight = weights + j * attention_block;
            float* d_score = d_scores + j * attention_block;
            const int i = block.index[j], seen = i < 0 ? 0 : smaller(attention_block, larger(0, args.query_places[i] + 1 - first));
            const size_t head = size_t(kv) * size_t(group) + size_t(h);
            const Vec log_sum = broadcast(i < 0 ? 0.0f : -args.log_sums[size_t(args.query_outputs[i]) * size_t(args.heads) + head]);
            const Vec pull = broadcast(i < 0 ? 0.0f : pulls[h * attention_block + j]);
            for (int k = 0; k < attention_block; k += lanes) {
              const int kept = larger(0, smaller(lanes, seen - k));
              const Vec p = power_of_two_of(fma(load(weight + k), broadcast(scale), log_sum));
              store(d_score + k, keep_first(mul(p, sub(load(d_score + k), pull)), kept));
              store(weight + k, keep_first(p, kept));
            }
            for (int k = 0; k < attention_block; ++k) {
              weight[k] = rounded_to_bf16(weight[k]);
              d_score[k] = rounded_to_bf16(d_score[k]);
            }
          }
          block_product(weights, true, attention_block, d_output.panels, hd, d_values, h > 0);
          block_product(d_scores, true, attention_block, query.panels, hd, d_keys, h > 0);
          block_product(d_scores, false, attention_block, keys.rows, hd, d_queries + size_t(h) * block_floats, true);
        }
        for (int k = 0; k < count; ++k) {
          float* d_key = backward.d_keys_values + size_t(args.chain_rows[first + k]) * args.ld_keys_values + size_t(kv) * size_t(hd);
          float* d_value = d_key + size_t(args.kv_heads) * size_t(hd);
          for (int d = 0; d < hd; d += lanes) {
            store(d_key + d, fma(load(d_keys + k * hd + d), broadcast(back), load(d_key + d)));
            store(d_value + d, add(load(d_value + d), load(d_values + k * hd + d)));
          }
        }
      }
      end_span();
      for (int j = 0; j < attention_block; ++j)
        for (int h = 0; h < group && block.index[j] >= 0; ++h) {
          const float* sum = before + size_t(h) * block_floats + size_t(j) * size_t(hd);
          const size_t column = (size_t(kv) * size_t(group) + size_t(h)) * size_t(hd);
          float* to = backward.d_queries + size_t(args.query_rows[block.index[j]]) * args.ld_qkv + column;
          for (int d = 0; d < hd; d += lanes) store(to + d, fma(load(sum + d), broadcast(back), load(to + d)));
        }
    }
}

}  // namespace
}  // namespace longhaul::ops
