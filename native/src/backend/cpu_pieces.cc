#include "backend/cpu_pieces.h"

#include <cstring>

#include "backend/cpu_device.h"
#include "pass/plan/pass_settings.h"

namespace longhaul {

void PackedLinear::resize(const CpuLinear& linear, int rows) {
  if (linear.trained()) x.resize(rows, linear.inputs());
  down.resize(linear.adapter ? linear.adapter->parts.size() : 0);
  for (size_t i = 0; i < down.size(); ++i) down[i].resize(rows, linear.adapter->parts[i].b.columns);
}

void PackedLinear::write(const CpuLinear& linear, Matrix<const float> rows_x, const float* rows_down, int first, int count) {
  if (linear.trained()) x.write(rows_x.data, rows_x.ld, first, count);
  for (PackedRows& part : down) {
    part.write(rows_down, size_t(linear.adapter_width()), first, count);
    rows_down += part.columns();
  }
}

const float* CpuPiece::at(const ParameterRange& range) const { return range.empty() ? nullptr : device_.weights().at(range); }

float* CpuPiece::d_gate_up() { return space_.d_gate_up.row(place_, size_t(2) * size_t(device_.architecture().intermediate_size)); }

const float* CpuPiece::lasting(const float* d_output) {
  const size_t width = size_t(device_.architecture().hidden_size);
  float* copy = space_.d_output.row(place_, width);
  std::memcpy(copy, d_output, size_t(rows.count) * width * sizeof(float));
  return copy;
}

void CpuPiece::linear_backward(Part part, const CpuLinear& linear, Matrix<const float> dy, Matrix<const float> x, const float* down,
                               float* dx) {
  PieceSpace::Product& product = space_.products[int(part)];
  if (place_ == 0) {
    product.linear = &linear;
    product.dy = dy;
  }
  product.x.write(linear, x, down, place_, rows.count);
  device_.linear_backward(linear, dy, dx, rows.count, product.d_down.row(place_, size_t(linear.adapter_width())));
}

template <class Work>
void CpuPiece::each_block(const ParameterRange& range, Work&& work) {
  const bool trained = !range.empty() && !device_.frozen();
  PieceSpace::BlockSum* sum = trained ? &space_.sums[sums_++] : nullptr;
  const size_t width = size_t(range.columns);
  if (trained && place_ == 0) sum->range = range;
  for (int i = 0; i < rows.count; i += norm_block_rows) {
    float* block = trained ? sum->blocks.row((place_ + i) / norm_block_rows, width) : nullptr;
    if (trained) std::memset(block, 0, width * sizeof(float));
    work(i, std::min(norm_block_rows, rows.count - i), block);
  }
}

void CpuPiece::norm_backward(const ParameterRange& norm, const float* x, const float* inverse, const float* dy, float* dx) {
  const int width = device_.architecture().hidden_size;
  each_block(norm, [&](int first, int count, float* block) {
    const size_t row = size_t(first) * size_t(width);
    device_.op().rms_norm_backward(x + row, at(norm), inverse + first, dy + row, dx + row, block, count, width);
  });
}

void CpuPiece::rotate_backward(Matrix<float> dx, const ParameterRange& norm, const int32_t* positions, Matrix<const float> saved,
                               Matrix<const float> inverse, int heads) {
  const RopeTable& rope = device_.weights().rope();
  each_block(norm, [&](int first, int count, float* block) {
    const size_t row = size_t(first);
    device_.op().head_norm_rope_backward(dx.data + row * dx.ld, dx.ld, at(norm), positions + first, rope.cos(), rope.sin(),
                                norm.empty() ? nullptr : saved.data + row * saved.ld, saved.ld,
                                norm.empty() ? nullptr : inverse.data + row * inverse.ld, inverse.ld, block, count, heads,
                                device_.architecture().head_dim);
  });
}

void CpuPiece::bias_backward(const ParameterRange& bias, Matrix<const float> dy) {
  each_block(bias, [&](int first, int count, float* block) {
    device_.op().column_sums(dy.data + size_t(first) * dy.ld, dy.ld, count, bias.columns, block);
  });
}

int CpuPieces::tile_rows(int rows, int threads) { return norm_block_rows * std::max(1, (sum_blocks(rows) + 4 * threads - 1) / (4 * threads)); }

void CpuPieces::make_room(PieceSpace& space, const Architecture& architecture, const CpuLinears& linears, int rows) {
  const size_t width = size_t(architecture.hidden_size), blocks = size_t(piece_rows / norm_block_rows);
  space.d_output.room(size_t(piece_rows) * width);
  space.d_gate_up.room(size_t(piece_rows) * 2 * size_t(architecture.intermediate_size));
  for (PieceSpace::BlockSum& sum : space.sums) {
    sum.range = {};
    sum.blocks.room(blocks * std::max(width, size_t(architecture.qkv_width())));
  }
  for (const Part part : all_parts) {
    const CpuLinear& linear = part_of(linears, part);
    PieceSpace::Product& product = space.products[int(part)];
    product.linear = nullptr;
    product.x.resize(linear, rows);
    product.d_down.rows(piece_rows, size_t(linear.adapter_width()));
  }
}

}  // namespace longhaul
