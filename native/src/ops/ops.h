// The operations that model code is written in: one table for each backend and instruction set. All CPU tables give the same bits: every
// output element is a pure function of its own row, sums run over 16 virtual lanes and then a fixed tree, and a GEMM element is one chain
// of fused multiply-adds over k. Matrices are row-major fp32; `ld…` are row strides. No operation starts threads: callers split rows among
// threads, and the split never changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"

namespace longhaul::ops {

/// Panel width, and the unit of KV blocks: GEMM operands are stored as panels of 32 columns.
inline constexpr int panel_columns = 32;

/// The number of panels of a matrix with this many columns.
constexpr int panel_count(int columns) { return (columns + panel_columns - 1) / panel_columns; }

/// B[K,N] in the order the GEMM kernels read it: panel p holds, for each k, columns [32·p, 32·p + 32), zero past N.
struct Panels {
  AlignedBuffer values{BufferMemory::mapped};
  int depth = 0;    // K
  int columns = 0;  // N

  [[gnu::always_inline]] const float* panel(int index) const { return values.data() + size_t(index) * depth * panel_columns; }
};

/// softmax(logits · inverse_temperature) of a row: log p_j = (z_j − max) · inverse_temperature − log_sum.
struct RowNormalizer {
  float max = 0;
  float log_sum = 0;
};

/// Attention of some rows over a block-wise KV cache.
struct PagedAttention {
  const float* qkv;                    // [rows, ld_qkv]: queries of all heads first
  size_t ld_qkv;
  int rows;
  const int32_t* positions;            // [rows]; a row sees the keys of positions 0 to its own
  const int32_t* const* block_tables;  // [rows]; neighbours whose first blocks are the same are computed together
  const float* cache;                  // this layer's keys of KV head 0 in block 0
  size_t block_stride;                 // floats between blocks
  size_t head_stride;                  // between KV heads; keys [head_dim, 32], then values [⌈head_dim / 32⌉, 32, 32], zero past head_dim
  int heads;
  int kv_heads;
  int head_dim;
  float* out;                          // [rows, heads · head_dim]
};

/// Attention of some rows of one forest node over the node's chain: causal, over all rows of its ancestors, then its own. Only for KV heads
/// [first_kv_head, last_kv_head), so that threads can share a node by heads.
struct ChainAttention {
  const float* qkv;           // [pass rows, ld_qkv]: queries (and keys, values) of the pass's rows
  size_t ld_qkv;
  const float* keys_values;   // [all rows, ld_keys_values]: keys, then values, of every row that a chain may name
  size_t ld_keys_values;
  const int32_t* chain_rows;  // [chain_length], in order of position: rows of keys and values
  int chain_length;
  // The node's rows with wanted output, in order: place in the chain, row in `qkv`, row in `out`.
  const int32_t* query_places;
  const int32_t* query_rows;
  const int32_t* query_outputs;
  int queries;
  int first_kv_head, last_kv_head;
  int heads;
  int kv_heads;
  int head_dim;
  float* out;                 // [outputs, heads · head_dim]
  float* log_sums;            // [outputs, heads]: log Σ exp of the scaled scores (in bf16 log₂); null if no backward follows
};

struct ChainAttentionBackward {
  ChainAttention forward;
  const float* d_out;      // [outputs, heads · head_dim]
  float* d_queries;        // [pass rows, ld_qkv], added to
  float* d_keys_values;    // [all rows, ld_keys_values], added to
};

/// Memory that a product prefetches while it computes: `count` pieces, `size` floats each.
struct FetchList {
  const float* const* chunks;
  int count;
  size_t size;
};

/// One AdamW step on a range of parameters; correction1 and correction2 are 1 − β1ᵗ and 1 − β2ᵗ.
struct AdamStep {
  float learning_rate, eps, weight_decay;
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float correction1, correction2;
  float gradient_scale;
};

/// How operations compute. `fp32`: a product's element is one chain of fused multiply-adds over k. `bf16`: on an H100's tensor cores
/// (base/tensor_core.h), of fp32 values that are bf16 numbers. Norms, rotation, SwiGLU, attention and the gradient of logits then round their
/// results to bf16, once; sums are fp32: those of products, of gradients, and what is added to or scaled in them.
enum class Arithmetic { fp32, bf16 };

struct Table {
  const char* name;

  // C[M,N] (+)= A[M,K] · B[K,N]
  void (*matmul)(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m, bool accumulate);
  // As matmul, but only for the columns of panels [first, last), so that threads can share few rows by columns: each reads a part of B. `c`
  // points to the place of column 0.
  void (*matmul_panels)(const float* a, size_t lda, const Panels& b, int first, int last, float* c, size_t ldc, int m,
                        bool accumulate);
  // As matmul_panels, and prefetches the data of the next work (if M is at least two tiles). Both are null in bf16.
  void (*matmul_fetching)(const float* a, size_t lda, const Panels& b, int first, int last, float* c, size_t ldc, int m,
                          bool accumulate, const FetchList& wanted);
  // C[M,N] += A[K,M]ᵀ · B[K,N]
  void (*matmul_transposed)(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m);
  // B = W[N,K]ᵀ. Writes panels [first, last) of `out`, whose sizes are set and which has room for all panels.
  void (*pack_transposed)(const float* w, size_t ldw, Panels& out, int first, int last);
  // B = X[K,N]
  void (*pack)(const float* x, size_t ldx, Panels& out, int first, int last);

  // y[i] = x[i] · inverse_rms[i] · weight; inverse_rms [rows] may be null
  void (*rms_norm)(const float* x, const float* weight, float eps, float* y, float* inverse_rms, int rows, int width);
  // dx += …; d_weight += …, rows in order (null: d_weight is not computed)
  void (*rms_norm_backward)(const float* x, const float* weight, const float* inverse_rms, const float* dy, float* dx,
                            float* d_weight, int rows, int width);
  // c [rows, ldc] += bias [columns]
  void (*add_bias)(float* c, size_t ldc, const float* bias, int rows, int columns);
  // out [columns] += the rows of dy, one after another, in order
  void (*column_sums)(const float* dy, size_t ld, int rows, int columns, float* out);
  // x [rows, columns], row stride ldx, *= factor
  void (*scale_rows)(float* x, size_t ldx, float factor, int rows, int columns);
  // x [rows, ldx] in place: RMSNorm of each of `heads` heads (skipped if `weight` is null), then rotary embedding at the row's position.
  // head_dim is a multiple of 16. saved [rows, heads, head_dim] (input) and inverse_rms [rows, heads] may be null.
  void (*head_norm_rope)(float* x, size_t ldx, const float* weight, float eps, const int32_t* positions, const float* cos,
                         const float* sin, float* saved, size_t ld_saved, float* inverse_rms, size_t ld_inverse, int rows,
                         int heads, int head_dim);
  // dx [rows, ldx] in place; adds to d_weight [head_dim], rows in order (null: not computed). Only the rotation if `weight` is null.
  void (*head_norm_rope_backward)(float* dx, size_t ldx, const float* weight, const int32_t* positions, const float* cos,
                                  const float* sin, const float* saved, size_t ld_saved, const float* inverse_rms,
                                  size_t ld_inverse, float* d_weight, int rows, int heads, int head_dim);
  // y[rows, f] = silu(gate) · up; gate_up [rows, 2·f]
  void (*swiglu)(const float* gate_up, float* y, int rows, int f);
  void (*swiglu_backward)(const float* gate_up, const float* dy, float* d_gate_up, int rows, int f);
  // a[n] += b[n]
  void (*add)(float* a, const float* b, size_t n);
  // x [rows, columns] in place, to the nearest bf16 number, ties to even; null in fp32
  void (*round_rows)(float* x, size_t ldx, int rows, int columns);
  // Σ x², in blocks of 4096 summed in order, in double
  double (*sum_of_squares)(const float* x, size_t n);

  void (*store_keys_values)(const float* qkv, size_t ld_qkv, int rows, const int32_t* positions,
                            const int32_t* const* block_tables, float* cache, size_t block_stride, size_t head_stride,
                            int heads, int kv_heads, int head_dim);
  void (*paged_attention)(const PagedAttention& args);
  void (*chain_attention)(const ChainAttention& args);
  void (*chain_attention_backward)(const ChainAttentionBackward& args);

  // The result is not finite if a logit is not.
  RowNormalizer (*normalize_row)(const float* logits, int n, float inverse_temperature);
  // The first token at which the CDF exceeds `uniform`, in token order; −1 if the logits are not finite.
  int32_t (*draw_row)(const float* logits, int n, float inverse_temperature, float uniform, RowNormalizer* normalizer);
  // In place: logits → scale · (softmax − onehot(token))
  void (*softmax_gradient)(float* logits, int n, RowNormalizer normalizer, float inverse_temperature, int token,
                           float scale);
  // −Σ p log p of softmax(logits · inverse_temperature), nats; sums by blocks of 64 tokens as normalize_row does
  float (*row_entropy)(const float* logits, int n, RowNormalizer normalizer, float inverse_temperature);
  // As softmax_gradient, plus the entropy's gradient: logits_j → scale · (p_j − onehot) + entropy_scale · p_j · (log p_j + entropy)
  void (*softmax_entropy_gradient)(float* logits, int n, RowNormalizer normalizer, float inverse_temperature, int token,
                                   float scale, float entropy, float entropy_scale);

  void (*adamw)(const AdamStep& step, float* weights, float* first, float* second, const float* gradients, size_t n);
  // An AdamW step with moments in 8 bits (model/moments.h, cpu/moment_kernels.h): n values in blocks of 256 with one scale each; the last
  // block may be shorter. `decayed` [⌈n / 16⌉] says for every 16 values whether weight decay applies, since a block may span two matrices;
  // null: it applies to all.
  void (*adamw_8bit)(const AdamStep& step, float* weights, int8_t* first_codes, float* first_scales, uint8_t* second_codes,
                     float* second_scales, const float* gradients, size_t n, const uint8_t* decayed);
};

/// log softmax of one token, from its logit.
inline float row_logprob(float logit, RowNormalizer normalizer, float inverse_temperature) {
  return (logit - normalizer.max) * inverse_temperature - normalizer.log_sum;
}

enum class InstructionSet { scalar, avx2, avx512 };

bool supported(InstructionSet set);
/// The widest instruction set that this machine supports.
InstructionSet best_instruction_set();
/// Throws std::invalid_argument if this machine does not support it. Call it only while no operation runs.
void set_instruction_set(InstructionSet set);
InstructionSet instruction_set();
const char* name(InstructionSet set);

/// The table in use.
const Table& table(Arithmetic arithmetic = Arithmetic::fp32);

/// Gives `out` the sizes of B[K,N] and room for it, columns past N zero; contents are unspecified until packed.
void size_panels(Panels& out, int depth, int columns);

/// Sizes `out` for B[K,N] and packs it: from W[N,K] (transposed) or from X[K,N].
void pack_transposed(const float* w, int n, int k, Panels& out);
void pack(const float* x, size_t ldx, int k, int n, Panels& out);

}  // namespace longhaul::ops
