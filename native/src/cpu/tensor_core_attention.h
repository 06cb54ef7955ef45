// Attention of training and of sampling on the sums of an H100's tensor cores. A row is computed from its own query and the keys that it
// sees, alike in both, so that sampling, prefill and training give equal bits:
// - Keys go in blocks of 64 by position. scale = log2(e) / √head_dim, and m is the greatest score · scale so far.
// - In each block a score is one chain over head_dim; weight = 2^(score · scale − m), 0 past the last key that the row sees.
// - What was summed before is multiplied by 2^(m before − m). Then the values are added: one chain over the block's keys with the weights
//   rounded to bf16.
// - The sum of weights has four parts: key k belongs to part k % 8 / 2. In a block a part is (t0 + t1) + (t2 + t3) over its sixteens, and
//   t = (w0 + w1) + (w8 + w9), by place in the part's sixteen. The whole is (0 + 1) + (2 + 3).
// - Spans of 2,048 keys are computed alone, and joined in ascending order.
// The output is sum of values · (1 / sum of weights), rounded to bf16.
#pragma once

#include "cpu/attention_kernels.h"
#include "cpu/tensor_core_kernels.h"

namespace longhaul::ops {
namespace {

constexpr int attention_block = 64, attention_span = 2048;
/// Rows that share the packing of a block's keys.
constexpr int attended_rows = 16;
constexpr int weight_parts = 4;

/// 2ᵗ for t ≤ 0 to 1.7e-7; below −125 it is 2⁻¹²⁵. NaN stays NaN.
inline Vec power_of_two_of(Vec t) {
  t = max(broadcast(-125.0f), t);
  const Vec shift = broadcast(integer_shift), shifted = add(t, shift), f = sub(t, sub(shifted, shift));
  Vec p = broadcast(0.00132647227f);
  p = fma(p, f, broadcast(0.00967151299f));
  p = fma(p, f, broadcast(0.0555073358f));
  p = fma(p, f, broadcast(0.240222424f));
  p = fma(p, f, broadcast(0.693147004f));
  p = fma(p, f, broadcast(1.0f));
  return mul(p, power_of_two(shifted));
}
inline float power_of_two_of(float t) {
  float power[lanes];
  store(power, power_of_two_of(broadcast(t)));
  return power[0];
}

/// To the nearest bf16 number, ties to even. NaN becomes 0x7FFF.
[[gnu::always_inline]] inline float rounded_to_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
  bits = (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFF0000u : rounded;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

/// Rows that attend to a beginning of the same keys, each with one head's query.
struct AttendedRows {
  const float* queries[attended_rows];  // [head_dim]
  int visible[attended_rows];           // the row sees keys [0, visible)
  float* outputs[attended_rows];        // [head_dim]
  float* log_sums[attended_rows];       // null: not wanted; else log2 Σ 2^(score · scale)
  int count = 0;
};

/// What a row has summed of a span, or of all spans so far.
struct AttentionSum {
  float greatest, weights;
  float* values;  // [head_dim]
};

inline void join_span(AttentionSum& all, const AttentionSum& span, int head_dim, bool first) {
  if (first) {
    copy_row(span.values, all.values, head_dim);
    all.greatest = span.greatest;
    all.weights = span.weights;
    return;
  }
  const float greatest = span.greatest > all.greatest ? span.greatest : all.greatest;
  const float before = power_of_two_of(all.greatest - greatest), now = power_of_two_of(span.greatest - greatest);
  all.greatest = greatest;
  all.weights = __builtin_fmaf(all.weights, before, span.weights * now);
  for (int d = 0; d < head_dim; ++d) all.values[d] = __builtin_fmaf(all.values[d], before, span.values[d] * now);
}

/// keys(first, count, out) writes keys [first, first + count) to panels [head_dim, 64]; values likewise to panels [64, head_dim]. Both write
/// zeros past `count`.
template <class Keys, class Values>
inline void attend_on_tensor_cores(const AttendedRows& rows, int head_dim, Keys&& keys, Values&& values) {
  const int width = padded_width(head_dim);
  const float scale = float(1.4426950408889634 / __builtin_sqrt(double(head_dim)));
  int longest = 0;
  for (int i = 0; i < rows.count; ++i) longest = larger(longest, rows.visible[i]);
  float* key_panels = scratch(Scratch::keys_panels, size_t(head_dim) * attention_block);
  float* value_panels = scratch(Scratch::values_panels, size_t(attention_block) * size_t(width));
  float* queries = scratch(Scratch::queries, size_t(attended_rows) * size_t(head_dim));
  float* span_values = scratch(Scratch::outputs, size_t(attended_rows) * size_t(head_dim));
  float* all_values = scratch(Scratch::d_outputs, size_t(attended_rows) * size_t(head_dim));
  alignas(64) float scores[attended_rows * attention_block];
  float greatest[attended_rows], parts[attended_rows][weight_parts];
  AttentionSum all[attended_rows];
  for (int i = 0; i < rows.count; ++i) {
    copy_row(rows.queries[i], queries + i * head_dim, head_dim);
    all[i].values = all_values + i * head_dim;
  }

  for (int span = 0; span < longest; span += attention_span) {
    for (int i = 0; i < rows.count; ++i) {
      greatest[i] = -__builtin_inff();
      for (float& part : parts[i]) part = 0;
    }
    __builtin_memset(span_values, 0, size_t(attended_rows) * size_t(head_dim) * sizeof(float));
    const int end = smaller(span + attention_span, longest);
    for (int block = span; block < end; block += attention_block) {
      const int count = smaller(attention_block, end - block);
      keys(block, count, key_panels);
      values(block, count, value_panels);
      compute_chains({queries, size_t(head_dim), 1, key_panels, head_dim, attention_block, scores, attention_block, false}, rows.count);
      for (int i = 0; i < rows.count; ++i) {
        float* row = scores + i * attention_block;
        const int seen = smaller(attention_block, rows.visible[i] - block);
        if (seen <= 0) continue;
        Vec top = broadcast(-__builtin_inff());
        for (int j = 0; j < seen; j += lanes) top = max(top, load_first(row + j, smaller(lanes, seen - j), -__builtin_inff()));
        const float scaled = maximum(top) * scale, now = scaled > greatest[i] || scaled != scaled ? scaled : greatest[i];
        const float factor = power_of_two_of(greatest[i] - now);
        greatest[i] = now;
        for (int j = 0; j < attention_block; j += lanes) {
          const Vec weights = power_of_two_of(fma(load(row + j), broadcast(scale), broadcast(-now)));
          store(row + j, keep_first(weights, larger(0, smaller(lanes, seen - j))));
        }
        for (int part = 0; part < weight_parts; ++part) {
          float sixteens[attention_block / lanes];
          for (int s = 0; s < attention_block / lanes; ++s) {
            const float* w = row + s * lanes + 2 * part;
            sixteens[s] = (w[0] + w[1]) + (w[8] + w[9]);
          }
          parts[i][part] = __builtin_fmaf(parts[i][part], factor, (sixteens[0] + sixteens[1]) + (sixteens[2] + sixteens[3]));
        }
        if (factor != 1.0f) scale_row(span_values + i * head_dim, factor, span_values + i * head_dim, head_dim);
        for (int j = 0; j < attention_block; ++j) row[j] = rounded_to_bf16(row[j]);
      }
      // Rows that see none of the keys are left out, since even products with 0 turn −0 into +0.
      for (int i = 0, last; i < rows.count; i = last) {
        for (last = i; last < rows.count && rows.visible[last] > block;) ++last;
        compute_chains({scores + i * attention_block, attention_block, 1, value_panels, attention_block, head_dim,
                        span_values + i * head_dim, size_t(head_dim), true},
                       last - i);
        while (last < rows.count && rows.visible[last] <= block) ++last;
      }
    }
    for (int i = 0; i < rows.count; ++i) {
      const float* part = parts[i];
      if (span < rows.visible[i])
        join_span(all[i], {greatest[i], (part[0] + part[1]) + (part[2] + part[3]), span_values + i * head_dim}, head_dim, span == 0);
    }
  }
  for (int i = 0; i < rows.count; ++i) {
    const float inverse = 1.0f / all[i].weights;
    for (int d = 0; d < head_dim; ++d) rows.outputs[i][d] = rounded_to_bf16(all[i].values[d] * inverse);
    if (rows.log_sums[i]) *rows.log_sums[i] = __builtin_fmaf(logarithm(all[i].weights), 1.44269504088896341f, all[i].greatest);
  }
}

/// Copies `width` values to row `at` of panels [64, width].
inline void put_row(const float* from, int width, float* panels, int at) {
  for (int d = 0; d < width; d += panel_columns, panels += size_t(attention_block) * panel_columns)
    copy_row(from + d, panels + size_t(at) * panel_columns, smaller(panel_columns, width - d));
}

/// Of log_sums, base 2.
void tensor_core_chain_attention(const ChainAttention& args) {
  const int hd = args.head_dim, group = args.heads / args.kv_heads;
  for (int kv = args.first_kv_head; kv < args.last_kv_head; ++kv) {
    const auto key_of = [&](int place) {
      return args.keys_values + size_t(args.chain_rows[place]) * args.ld_keys_values + size_t(kv) * size_t(hd);
    };
    const auto keys = [&](int first, int count, float* out) {
      const float* rows[attention_block];
      __builtin_memset(out, 0, size_t(hd) * attention_block * sizeof(float));
      for (int j = 0; j < count; ++j) rows[j] = key_of(first + j);
      for (int j = 0; j < count; j += panel_columns, out += size_t(hd) * panel_columns)
        rows_to_panel(rows + j, smaller(panel_columns, count - j), hd, out);
    };
    const auto values = [&](int first, int count, float* out) {
      __builtin_memset(out, 0, size_t(attention_block) * size_t(padded_width(hd)) * sizeof(float));
      for (int j = 0; j < count; ++j) put_row(key_of(first + j) + size_t(args.kv_heads) * size_t(hd), hd, out, j);
    };
    AttendedRows rows;
    for (int i = 0; i < args.queries; ++i)
      for (int h = 0; h < group; ++h) {
        const size_t head = size_t(kv) * size_t(group) + size_t(h), output = size_t(args.query_outputs[i]);
        rows.queries[rows.count] = args.qkv + size_t(args.query_rows[i]) * args.ld_qkv + head * size_t(hd);
        rows.visible[rows.count] = args.query_places[i] + 1;
        rows.outputs[rows.count] = args.out + (output * size_t(args.heads) + head) * size_t(hd);
        rows.log_sums[rows.count] = args.log_sums ? args.log_sums + output * size_t(args.heads) + head : nullptr;
        if (++rows.count < attended_rows && (i + 1 < args.queries || h + 1 < group)) continue;
        attend_on_tensor_cores(rows, hd, keys, values);
        rows.count = 0;
      }
  }
}

void tensor_core_paged_attention(const PagedAttention& args) {
  const int hd = args.head_dim, group = args.heads / args.kv_heads;
  for (int kv = 0; kv < args.kv_heads; ++kv)
    for (int i = 0; i < args.rows; ++i) {
      const auto block_of = [&](int first) {
        return args.cache + size_t(args.block_tables[i][first / key_block]) * args.block_stride + size_t(kv) * args.head_stride;
      };
      const auto each_block = [&](int first, int count, auto&& take) {
        for (int j = 0; j < count; j += key_block) take(block_of(first + j), j, smaller(key_block, count - j));
      };
      // Slots past a row's last key may hold anything.
      const auto keys = [&](int first, int count, float* out) {
        __builtin_memset(out, 0, size_t(hd) * attention_block * sizeof(float));
        each_block(first, count, [&](const float* block, int, int filled) {
          for (int d = 0; d < hd; ++d) copy_row(block + size_t(d) * key_block, out + size_t(d) * panel_columns, filled);
          out += size_t(hd) * panel_columns;
        });
      };
      const auto values = [&](int first, int count, float* out) {
        __builtin_memset(out, 0, size_t(attention_block) * size_t(padded_width(hd)) * sizeof(float));
        each_block(first, count, [&](const float* block, int place, int filled) {
          const float* from = block + size_t(hd) * key_block;
          for (int panel = 0; panel < panel_count(hd); ++panel)
            copy_row(from + size_t(panel) * key_block * panel_columns,
                     out + (size_t(panel) * attention_block + size_t(place)) * panel_columns, filled * panel_columns);
        });
      };
      AttendedRows rows;
      for (int h = 0; h < group; ++h) {
        const size_t head = size_t(kv) * size_t(group) + size_t(h);
        rows.queries[rows.count] = args.qkv + size_t(i) * args.ld_qkv + head * size_t(hd);
        rows.visible[rows.count] = args.positions[i] + 1;
        rows.outputs[rows.count] = args.out + (size_t(i) * size_t(args.heads) + head) * size_t(hd);
        rows.log_sums[rows.count] = nullptr;
        if (++rows.count < attended_rows && h + 1 < group) continue;
        attend_on_tensor_cores(rows, hd, keys, values);
        rows.count = 0;
      }
    }
}

}  // namespace
}  // namespace longhaul::ops
