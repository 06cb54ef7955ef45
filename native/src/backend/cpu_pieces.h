// Backward layers on the CPU: pieces of rows go from the last to the first. While the tiles of one piece are computed, what the piece before
// it (in this order) adds to the gradients is added up.
#pragma once

#include <algorithm>
#include <span>

#include "backend/backward_linear.h"
#include "backend/cpu_buffer.h"
#include "base/thread_pool.h"
#include "pass/layer.h"
#include "pass/rows.h"

namespace longhaul {

/// What the gradients of one piece are computed from, beside activations.
struct PieceSpace {
  struct Product {
    const BackwardLinear* linear = nullptr;  // null: none in this piece
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

/// A tile of rows of a piece.
class CpuPiece {
 public:
  CpuPiece(PieceSpace& space, const Policy& policy, const ops::Table& op, RowRange rows, int place)
      : rows(rows), space_(space), policy_(policy), op_(op), place_(place) {}

  const RowRange rows;

  /// A copy that lasts until the piece's gradients are added.
  const float* lasting(const float* d_output);
  float* d_gate_up() { return space_.d_gate_up.row(place_, size_t(2) * size_t(architecture().intermediate_size)); }

  void linear_backward(Part part, const BackwardLinear& linear, Matrix<const float> dy, Matrix<const float> x, const float* down, float* dx);
  /// dx += …
  void norm_backward(const ParameterRange& norm, const float* x, const float* inverse, const float* dy, float* dx);
  /// In place; only the rotation if the norm's range is empty.
  void rotate_backward(Matrix<float> dx, const ParameterRange& norm, const int32_t* positions, Matrix<const float> saved,
                       Matrix<const float> inverse, int heads);
  void bias_backward(const ParameterRange& bias, Matrix<const float> dy);

 private:
  const Architecture& architecture() const { return policy_.architecture(); }
  const float* at(const ParameterRange& range) const { return range.empty() ? nullptr : policy_.weights().at(range); }
  /// Calls work(first, count, block) for each 64 rows; `block` receives their sum for the gradient of `range`, and is null if that is not
  /// trained.
  template <class Work>
  void each_block(const ParameterRange& range, Work&& work);

  PieceSpace& space_;
  const Policy& policy_;
  const ops::Table& op_;
  const int place_;  // of its first row in the piece
  int sums_ = 0;
};

class CpuPieces {
 public:
  explicit CpuPieces(int threads) : work_(threads) {}

  /// Calls body(tile) for the tiles of all pieces, and adds to `gradients`.
  template <class Body>
  void run(std::span<const RowRange> pieces, const Policy& policy, const BackwardLinears& linears, float* gradients, ThreadPool& pool,
           const ops::Table& op, Body&& body) {
    for (size_t i = 0; i <= pieces.size(); ++i) {
      work_.clear();
      if (i > 0) list_work(spaces_[(i - 1) % 2], pieces[i - 1].count, gradients);
      const RowRange piece = i < pieces.size() ? pieces[i] : RowRange{};
      const int rows = tile_rows(piece.count, pool.threads());
      const size_t tiles = size_t(piece.count + rows - 1) / size_t(rows);
      PieceSpace& space = spaces_[i % 2];
      if (tiles > 0) make_room(space, policy.architecture(), linears, piece.count);
      pool.parallel_for(tiles + work_.size(), [&](size_t item) {
        if (item >= tiles) return work_.run(item - tiles, op);
        const int place = int(item) * rows;
        CpuPiece tile(space, policy, op, {piece.first + place, std::min(rows, piece.count - place)}, place);
        body(tile);
      });
    }
  }

 private:
  /// A multiple of the blocks that the norms' gradients are summed in.
  static int tile_rows(int rows, int threads);
  static void make_room(PieceSpace& space, const Architecture& architecture, const BackwardLinears& linears, int rows);
  /// Adds what a piece of `rows` rows has recorded to `work_`.
  void list_work(const PieceSpace& space, int rows, float* gradients);

  PieceSpace spaces_[2];
  GradientWork work_;
};

}  // namespace longhaul
