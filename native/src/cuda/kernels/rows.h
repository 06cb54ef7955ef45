// Operations on rows other than norms (norms.h): gathers and sums of rows, biases, SwiGLU. Matrices are row-major; `ld…` are row strides in
// floats. Widths may be any number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/stream.h"

namespace longhaul::cuda {

/// A matrix in the device's memory whose rows are read.
struct ConstRows {
  const float* data;
  size_t ld;
};

/// A matrix whose rows are written.
struct Rows {
  float* data;
  size_t ld;
};

/// to[i] = from[indices[i]] for i < count, `width` floats each (an embedding, outputs, inputs of targets). Without `indices`, a copy.
void gather_rows(ConstRows from, const int32_t* indices, Rows to, int count, int width, Stream stream);

/// to[indices[i]] = from[i]; the indices differ.
void scatter_rows(ConstRows from, const int32_t* indices, Rows to, int count, int width, Stream stream);

/// Sums of rows, each in the order of a list: list i names the rows indices[starts[i]] to indices[starts[i + 1] − 1] of `from`. Without
/// `indices`, the rows starts[i] to starts[i + 1] − 1 themselves.
struct RowLists {
  const int32_t* starts;   // [count + 1]
  const int32_t* indices;  // [starts[count]], or null
  int count;
};

/// to[i] = the sum of list i, which has at least one row: the gradient of an output that several targets read.
void sum_rows(ConstRows from, const RowLists& lists, Rows to, int width, Stream stream);

/// to[targets[i]] += the rows of list i, one after another. The embedding's gradient: a list for each distinct token, with its rows in
/// canonical order (pieces from the last to the first, within a piece from the first row to the last). `targets` differ; null: row i.
void add_rows(ConstRows from, const RowLists& lists, const int32_t* targets, Rows to, int width, Stream stream);

/// Rows in one partial sum of a norm's or bias's gradient: norm_block_rows (pass/rows.h).
constexpr int sum_block_rows = 64;
constexpr int sum_blocks(int rows) { return (rows + sum_block_rows - 1) / sum_block_rows; }

/// target[width] += blocks[count, width], the last block first.
void add_blocks(const float* blocks, int count, float* target, int width, Stream stream);

/// target[width] += the sums of the rows of dy in blocks of 64, the last block first. `blocks` is scratch of [sum_blocks(rows), width].
/// Call it for pieces from the last to the first. A piece of 512 rows is eight blocks, so several neighbouring pieces may be one call.
void column_sums(ConstRows dy, int rows, float* blocks, float* target, int width, Stream stream);

/// c += bias[width] in each row.
void add_bias(Rows c, const float* bias, int rows, int width, Stream stream);

/// x *= factor
void scale_rows(Rows x, float factor, int rows, int width, Stream stream);

/// y[rows, f] = silu(gate) · up; gate_up [rows, 2·f]
void swiglu(const float* gate_up, float* y, int rows, int f, Stream stream);

/// d_gate_up [rows, 2·f] from dy [rows, f]
void swiglu_backward(const float* gate_up, const float* dy, float* d_gate_up, int rows, int f, Stream stream);

}  // namespace longhaul::cuda
