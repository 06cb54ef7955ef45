// The table of operations of one instruction set. Exactly one source file for each instruction set includes it.
#pragma once

#include "cpu/attention_kernels.h"
#include "cpu/bf16_kernels.h"
#include "cpu/fetching_kernels.h"
#include "cpu/gemm_kernels.h"
#include "cpu/head_kernels.h"
#include "cpu/moment_kernels.h"
#include "cpu/row_kernels.h"
#include "cpu/tensor_core_attention_backward.h"
#include "cpu/tensor_core_kernels.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

constexpr Table make_table(const char* name) {
  Table table{};
  table.name = name;
  table.matmul = matmul;
  table.matmul_panels = matmul_panels;
  table.matmul_fetching = matmul_fetching;
  table.matmul_transposed = matmul_transposed;
  table.pack_transposed = pack_transposed_panels;
  table.pack = pack_panels;
  table.rms_norm = rms_norm;
  table.rms_norm_backward = rms_norm_backward;
  table.add_bias = add_bias;
  table.column_sums = column_sums;
  table.scale_rows = scale_rows;
  table.head_norm_rope = head_norm_rope;
  table.head_norm_rope_backward = head_norm_rope_backward;
  table.swiglu = swiglu;
  table.swiglu_backward = swiglu_backward;
  table.add = add_into;
  table.sum_of_squares = sum_of_squares;
  table.store_keys_values = store_keys_values;
  table.paged_attention = paged_attention;
  table.chain_attention = chain_attention;
  table.chain_attention_backward = chain_attention_backward;
  table.normalize_row = normalize_row;
  table.draw_row = draw_row;
  table.softmax_gradient = softmax_gradient;
  table.row_entropy = row_entropy;
  table.softmax_entropy_gradient = softmax_entropy_gradient;
  table.adamw = adamw;
  table.adamw_8bit = adamw_8bit;
  return table;
}

constexpr Table make_bf16_table(const char* name) {
  Table table = make_table(name);
  table.matmul = tensor_core_matmul;
  table.matmul_panels = nullptr;
  table.matmul_fetching = nullptr;
  table.matmul_transposed = tensor_core_matmul_transposed;
  table.rms_norm = bf16_rms_norm;
  table.rms_norm_backward = bf16_rms_norm_backward;
  table.head_norm_rope = bf16_head_norm_rope;
  table.head_norm_rope_backward = bf16_head_norm_rope_backward;
  table.swiglu = bf16_swiglu;
  table.swiglu_backward = bf16_swiglu_backward;
  table.round_rows = round_rows;
  table.paged_attention = tensor_core_paged_attention;
  table.chain_attention = tensor_core_chain_attention;
  table.chain_attention_backward = tensor_core_chain_attention_backward;
  table.softmax_gradient = bf16_softmax_gradient;
  table.softmax_entropy_gradient = bf16_softmax_entropy_gradient;
  return table;
}

}  // namespace
}  // namespace longhaul::ops
