#include "pass/plan/pass_plan.h"

#include <algorithm>
#include <numeric>

#include "pass/plan/pass_settings.h"

namespace longhaul {

namespace {

/// Of the gradients in bf16.
constexpr int pieces_of_sum = 4096 / piece_rows, gradient_shards = 8;

int piece_of(int row) { return row / piece_rows; }

int count_pieces(int rows) { return (rows + piece_rows - 1) / piece_rows; }

int pieces_of_pass(int pass_rows) { return std::max(1, pass_rows / piece_rows); }

}  // namespace

int count_passes(int rows, int pass_rows) {
  const int whole = pieces_of_pass(pass_rows);
  return (count_pieces(rows) + whole - 1) / whole;
}

PassPlan::PassPlan(const Forest& forest, std::span<const int32_t> target_rows, int pass_rows) {
  cut(forest);
  place_targets(forest, target_rows);
  form_passes(forest.rows(), pass_rows);
  list_tokens(forest);
  counting.resize(size_t(most_rows()));
  std::iota(counting.begin(), counting.end(), 0);
}

void PassPlan::cut(const Forest& forest) {
  // A child's chain continues after the last segment of its parent.
  std::vector<int> last_segment(forest.nodes.size());
  int trees = 0;
  for (size_t n = 0; n < forest.nodes.size(); ++n) {
    const ForestNode& node = forest.nodes[n];
    int parent = node.parent < 0 ? -1 : last_segment[node.parent];
    const int tree = parent < 0 ? trees++ : segments[parent].tree;
    for (int done = 0; done < node.rows;) {
      const int row = node.first_row + done;
      const int count = std::min(node.rows - done, (piece_of(row) + 1) * piece_rows - row);
      segments.push_back({parent, row, count, node.position + done, tree, 0, 0});
      parent = int(segments.size()) - 1;
      done += count;
    }
    last_segment[n] = parent;
  }
}

void PassPlan::place_targets(const Forest& forest, std::span<const int32_t> target_rows) {
  target_order.resize(target_rows.size());
  std::iota(target_order.begin(), target_order.end(), 0);
  std::stable_sort(target_order.begin(), target_order.end(), [&](int32_t a, int32_t b) {
    const int row_a = target_rows[a], row_b = target_rows[b];
    return piece_of(row_a) != piece_of(row_b) ? piece_of(row_a) > piece_of(row_b) : row_a < row_b;
  });

  output_rows.assign(target_rows.begin(), target_rows.end());
  std::sort(output_rows.begin(), output_rows.end());
  output_rows.erase(std::unique(output_rows.begin(), output_rows.end()), output_rows.end());
  const auto output_from = [&](int row) {
    return int(std::lower_bound(output_rows.begin(), output_rows.end(), row) - output_rows.begin());
  };
  output_targets.assign(output_rows.size(), 0);
  target_outputs.resize(target_order.size());
  for (size_t i = target_order.size(); i-- > 0;) {
    target_outputs[i] = output_from(target_rows[target_order[i]]);
    output_targets[target_outputs[i]] = int32_t(i);
  }
  for (const int32_t row : output_rows) output_positions.push_back(forest.positions[row]);
  for (Segment& segment : segments) {
    segment.first_output = output_from(segment.first_row);
    segment.outputs = output_from(segment.first_row + segment.rows) - segment.first_output;
  }
  for (int piece = 0; piece <= count_pieces(forest.rows()); ++piece) piece_outputs.push_back(output_from(piece * piece_rows));
}

int PassPlan::targets_of(int output) const {
  int count = 0;
  for (size_t t = size_t(output_targets[output]); t < target_outputs.size() && target_outputs[t] == output; ++t) ++count;
  return count;
}

PieceRange PassPlan::piece_range(RowRange range, int piece) const {
  const int pieces = int(piece_outputs.size()) - 1, sums = (pieces + pieces_of_sum - 1) / pieces_of_sum, sum = piece / pieces_of_sum;
  return {range, sum, sum * gradient_shards / sums};
}

std::vector<PieceRange> PassPlan::pieces(const PassRange& pass, bool of_outputs) const {
  std::vector<PieceRange> pieces;
  for (int piece = pass.pieces - 1; piece >= 0; --piece) {
    const int number = pass.first_piece + piece;
    const int32_t* outputs = piece_outputs.data() + number;
    if (!of_outputs)
      pieces.push_back(piece_range({piece * piece_rows, std::min(piece_rows, pass.rows - piece * piece_rows)}, number));
    else if (outputs[1] > outputs[0])
      pieces.push_back(piece_range({outputs[0] - pass.first_output, outputs[1] - outputs[0]}, number));
  }
  return pieces;
}

std::vector<PieceRange> PassPlan::target_chunks(const PassRange& pass, int most, bool by_piece) const {
  std::vector<PieceRange> chunks;
  const auto piece_at = [&](int target) { return piece_of(output_rows[size_t(target_outputs[size_t(pass.first_target + target)])]); };
  for (int first = 0; first < pass.targets;) {
    int end = std::min(first + most, pass.targets);
    while (by_piece && piece_at(end - 1) != piece_at(first)) --end;
    chunks.push_back(piece_range({first, end - first}, piece_at(first)));
    first = end;
  }
  return chunks;
}

void PassPlan::form_passes(int rows, int pass_rows) {
  const int pieces = count_pieces(rows), most = pieces_of_pass(pass_rows);
  output_pass_rows.resize(output_rows.size());
  size_t segment = 0;
  for (int first = 0; first < pieces; first += most) {
    PassRange pass;
    pass.first_piece = first;
    pass.pieces = std::min(most, pieces - first);
    pass.first_row = first * piece_rows;
    pass.rows = std::min(rows, (first + pass.pieces) * piece_rows) - pass.first_row;
    pass.first_output = piece_outputs[first];
    pass.outputs = piece_outputs[first + pass.pieces] - pass.first_output;
    for (int o = 0; o < pass.outputs; ++o)
      output_pass_rows[pass.first_output + o] = output_rows[pass.first_output + o] - pass.first_row;
    pass.first_segment = int(segment);
    while (segment < segments.size() && segments[segment].first_row < pass.first_row + pass.rows) ++segment;
    pass.segments = int(segment) - pass.first_segment;
    group_segments_of(pass);
    passes.push_back(pass);
  }
  // Later passes come first in the canonical order of targets.
  int target = 0;
  for (size_t p = passes.size(); p-- > 0;) {
    PassRange& pass = passes[p];
    pass.first_target = target;
    while (target < int(target_outputs.size()) && target_outputs[target] >= pass.first_output) ++target;
    pass.targets = target - pass.first_target;
  }
}

void PassPlan::group_segments_of(PassRange& pass) {
  const auto work = [this](int s) { return int64_t(segments[s].rows) * (segments[s].position + segments[s].rows); };
  std::vector<int> order(size_t(pass.segments));
  std::iota(order.begin(), order.end(), pass.first_segment);
  std::vector<int> longest_first = order;
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](int a, int b) { return work(a) > work(b); });
  by_work.insert(by_work.end(), longest_first.begin(), longest_first.end());

  std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
    return segments[a].tree != segments[b].tree ? segments[a].tree < segments[b].tree : a > b;
  });
  struct Weighed {
    SegmentGroup group;
    int64_t work;
  };
  std::vector<Weighed> weighed;
  for (int i = 0; i < pass.segments; ++i) {
    if (i == 0 || segments[order[i]].tree != segments[order[i - 1]].tree)
      weighed.push_back({{int(group_segments.size()) + i, 0}, 0});
    ++weighed.back().group.count;
    weighed.back().work += work(order[i]);
  }
  group_segments.insert(group_segments.end(), order.begin(), order.end());
  std::stable_sort(weighed.begin(), weighed.end(), [](const Weighed& a, const Weighed& b) { return a.work > b.work; });
  pass.first_group = int(groups.size());
  pass.groups = int(weighed.size());
  for (const Weighed& entry : weighed) groups.push_back(entry.group);
}

void PassPlan::list_tokens(const Forest& forest) {
  distinct_tokens.assign(forest.tokens.begin(), forest.tokens.end());
  std::sort(distinct_tokens.begin(), distinct_tokens.end());
  distinct_tokens.erase(std::unique(distinct_tokens.begin(), distinct_tokens.end()), distinct_tokens.end());
  token_slots.reserve(forest.tokens.size());
  for (const int32_t token : forest.tokens)
    token_slots.push_back(
        int32_t(std::lower_bound(distinct_tokens.begin(), distinct_tokens.end(), token) - distinct_tokens.begin()));
}

int PassPlan::most_rows() const {
  int most = 0;
  for (const PassRange& pass : passes) most = std::max(most, pass.rows);
  return most;
}

int PassPlan::most_targets() const {
  int most = 0;
  for (const PassRange& pass : passes) most = std::max(most, pass.targets);
  return most;
}

void PassPlan::chain(int segment, std::vector<int32_t>& rows) const {
  rows.resize(size_t(segments[segment].position) + size_t(segments[segment].rows));
  for (int s = segment; s >= 0; s = segments[s].parent)
    std::iota(rows.begin() + segments[s].position, rows.begin() + segments[s].position + segments[s].rows, segments[s].first_row);
}

}  // namespace longhaul
