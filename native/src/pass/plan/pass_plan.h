// How a forest is cut for its passes: pieces of 512 rows, runs of pieces that are computed at once, the parts of nodes between two cuts,
// and the rows and targets after the last layer. Rows and outputs are numbered over the whole forest unless said otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pass/plan/forest.h"
#include "pass/rows.h"

namespace longhaul {

/// Rows of one node between two cuts. A node that straddles a cut becomes two segments; the second is a child of the first.
struct Segment {
  /// The segment just before it in the chain; −1 for the first segment of a root.
  int parent = -1;
  int first_row = 0;
  int rows = 0;
  /// Position of its first row.
  int position = 0;
  /// Number of its tree.
  int tree = 0;
  /// Outputs are the distinct rows that targets read, in ascending order.
  int first_output = 0;
  int outputs = 0;
};

/// Rows, outputs or targets of one piece. Numerics that add up gradients in sums of 4,096 rows and shards of sums need their numbers.
struct PieceRange : RowRange {
  int sum = 0, shard = 0;
};

/// Consecutive pieces that are computed at once, and the segments, outputs and targets in them.
struct PassRange {
  int first_row = 0, rows = 0;
  int first_piece = 0, pieces = 0;
  int first_segment = 0, segments = 0;
  int first_output = 0, outputs = 0;
  /// Numbered in canonical order of targets.
  int first_target = 0, targets = 0;
  /// Indices into `group_segments`.
  int first_group = 0, groups = 0;
};

/// Segments of one tree within one pass. Their gradients of keys and values are added one segment after another.
struct SegmentGroup {
  int first = 0, count = 0;
};

struct PassPlan {
  std::vector<Segment> segments;
  std::vector<PassRange> passes;
  std::vector<SegmentGroup> groups;
  /// The segments of each group, from the last to the first.
  std::vector<int> group_segments;
  /// The segments of each pass, the segment with the most work first.
  std::vector<int> by_work;

  /// [outputs]: row in the forest, row within its pass, position, number of its first target in canonical order.
  std::vector<int32_t> output_rows, output_pass_rows, output_positions, output_targets;
  /// [pieces + 1]: first output in each piece.
  std::vector<int32_t> piece_outputs;
  /// Canonical order of targets: by piece, last piece first; within a piece by row; targets of one row in the order of `target_rows`.
  /// [targets]: the target's index in `target_rows`; the output that it reads.
  std::vector<int32_t> target_order, target_outputs;

  /// [rows]: index of the row's token in `distinct_tokens`, which ascend.
  std::vector<int32_t> token_slots, distinct_tokens;
  /// 0, 1, 2, … up to the length of the longest pass.
  std::vector<int32_t> counting;

  PassPlan() = default;
  PassPlan(const Forest& forest, std::span<const int32_t> target_rows, int pass_rows);

  int most_rows() const;
  int most_targets() const;
  int outputs() const { return int(output_rows.size()); }
  int targets_of(int output) const;
  /// The pieces of a pass, from the last to the first: ranges of its rows, or of its outputs, and then without empty ones.
  std::vector<PieceRange> pieces(const PassRange& pass, bool of_outputs) const;
  /// The targets of a pass, numbered from its first, in ranges of at most `most`; with `by_piece` none reaches over the end of a piece.
  std::vector<PieceRange> target_chunks(const PassRange& pass, int most, bool by_piece) const;
  /// Writes the rows of a segment's ancestors, then its own rows, in order of position.
  void chain(int segment, std::vector<int32_t>& rows) const;

 private:
  PieceRange piece_range(RowRange range, int piece) const;
  void cut(const Forest& forest);
  void place_targets(const Forest& forest, std::span<const int32_t> target_rows);
  void form_passes(int rows, int pass_rows);
  void group_segments_of(PassRange& pass);
  void list_tokens(const Forest& forest);
};

/// Number of passes that `rows` rows take.
int count_passes(int rows, int pass_rows);

}  // namespace longhaul
