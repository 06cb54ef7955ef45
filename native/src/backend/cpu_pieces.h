// Backward layers on the CPU: pieces of rows go from the last to the first. While the tiles of one piece are computed, what the piece before
// it (in this order) adds to the gradients is added up.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cpu_buffer.h"
#include "cpu/gradient_work.h"
#include "model/policy.h"
#include "pass/linear.h"
#include "pass/plan/pass_plan.h"

namespace longhaul {

class CpuDevice;

/// Over the panels that forward or backward passes read.
using CpuLinear = Linear<const ops::Panels*>;
using CpuLinears = Linears<const ops::Panels*>;

/// The right-hand sides of the products that give one linear layer's gradients.
struct PackedLinear {
  PackedRows x;
  /// [parts]: scale·x·Aᵀ for each part of the adapter.
  std::vector<PackedRows> down;

  /// Sets the sizes for this many rows; parts that are not trained take no memory.
  void resize(const CpuLinear& linear, int rows);
  /// Writes rows [first, first + count) of x, and `rows_down` [count, adapter_width].
  void write(const CpuLinear& linear, Matrix<const float> rows_x, const float* rows_down, int first, int count);
};

/// What the gradients of one piece are computed from, beside activations.
struct PieceSpace {
  struct Product {
    const CpuLinear* linear = nullptr;  // null: none in this piece
    Matrix<const float> dy;
    PackedLinear x;
    CpuBuffer<float> d_down;
  };
  /// Sums over blocks of 64 rows.
  struct BlockSum {
    ParameterRange range;  // empty: none in this piece
    CpuBuffer<float> blocks;
  };

  CpuBuffer<float> d_output;   // [512, hidden]: gradient of the MLP's output
  CpuBuffer<float> d_gate_up;  // [512, 2 · intermediate]
  Product products[4];         // by Part
  BlockSum sums[4];            // in the order in which a tile computes them
};

inline int sum_blocks(int rows) { return (rows + norm_block_rows - 1) / norm_block_rows; }

/// A tile of rows of a piece.
class CpuPiece {
 public:
  CpuPiece(PieceSpace& space, const CpuDevice& device, RowRange rows, int place) : rows(rows), space_(space), device_(device), place_(place) {}

  const RowRange rows;

  /// A copy that lasts until the piece's gradients are added.
  const float* lasting(const float* d_output);
  float* d_gate_up();

  void linear_backward(Part part, const CpuLinear& linear, Matrix<const float> dy, Matrix<const float> x, const float* down, float* dx);
  /// dx += …
  void norm_backward(const ParameterRange& norm, const float* x, const float* inverse, const float* dy, float* dx);
  /// In place; only the rotation if the norm's range is empty.
  void rotate_backward(Matrix<float> dx, const ParameterRange& norm, const int32_t* positions, Matrix<const float> saved,
                       Matrix<const float> inverse, int heads);
  void bias_backward(const ParameterRange& bias, Matrix<const float> dy);

 private:
  const float* at(const ParameterRange& range) const;
  /// Calls work(first, count, block) for each 64 rows; `block` receives their sum for the gradient of `range`, and is null if that is not
  /// trained.
  template <class Work>
  void each_block(const ParameterRange& range, Work&& work);

  PieceSpace& space_;
  const CpuDevice& device_;
  const int place_;  // of its first row in the piece
  int sums_ = 0;
};

class CpuPieces {
 public:
  explicit CpuPieces(int threads) : work_(threads) {}

  /// Calls body(tile) for the tiles of all pieces, and adds to gradients: `sums(range, piece)` is where those of a matrix are.
  template <class Device, class Sums, class Body>
  void run(std::span<const PieceRange> pieces, const Device& device, const CpuLinears& linears, float* gradients, Sums&& sums, Body&& body) {
    for (size_t i = 0; i <= pieces.size(); ++i) {
      work_.clear();
      if (i > 0)
        list_work(spaces_[(i - 1) % 2], pieces[i - 1].count, gradients, [&](const ParameterRange& range) { return sums(range, pieces[i - 1]); });
      const PieceRange piece = i < pieces.size() ? pieces[i] : PieceRange{};
      const int rows = tile_rows(piece.count, device.threads());
      const size_t tiles = size_t(piece.count + rows - 1) / size_t(rows);
      PieceSpace& space = spaces_[i % 2];
      if (tiles > 0) make_room(space, device.architecture(), linears, piece.count);
      device.pool().parallel_for(tiles + work_.size(), [&](size_t item) {
        if (item >= tiles) return work_.run(item - tiles, device.op());
        const int place = int(item) * rows;
        CpuPiece tile(space, device, {piece.first + place, std::min(rows, piece.count - place)}, place);
        body(tile);
      });
    }
  }

 private:
  /// A multiple of the blocks that the norms' gradients are summed in.
  static int tile_rows(int rows, int threads);
  static void make_room(PieceSpace& space, const Architecture& architecture, const CpuLinears& linears, int rows);
  /// Adds what a piece of `rows` rows has recorded to `work_`.
  void list_work(const PieceSpace& space, int rows, float* gradients, auto&& sums) {
    for (const PieceSpace::Product& product : space.products) {
      if (!product.linear) continue;
      each_gradient(*product.linear, product.dy, product.d_down.data(), [&](const ParameterRange& range, Matrix<const float> left, int part) {
        const PackedRows& right = part < 0 ? product.x.x : product.x.down[size_t(part)];
        work_.add({sums(range), size_t(range.columns), left.data, left.ld, &right, range.rows});
      });
    }
    for (const PieceSpace::BlockSum& sum : space.sums)
      if (!sum.range.empty()) work_.add_blocks(gradients + sum.range.offset, sum.blocks.data(), sum_blocks(rows), sum.range.columns);
  }

  PieceSpace spaces_[2];
  GradientWork work_;
};

}  // namespace longhaul
