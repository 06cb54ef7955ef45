// Decoding in turns: products need the arithmetic units and attention needs memory. So each thread works on two halves of its rows: one is
// in its products while the other attends. A row's keys and values, including the new ones, are prefetched just before it attends.
#include <algorithm>
#include <vector>

#include "backend/inference/cpu_extension.h"

namespace longhaul {

/// A half that attends step by step while the other half multiplies; when half of the products are done, half of its rows have attended.
class CpuExtension::Attendance {
 public:
  /// `work`: size of the other half's products, in steps of panels. `out` receives the attention of this half.
  Attendance(CpuExtension& extension, int layer, RowRange half, size_t work, float* out)
      : extension_(extension),
        layer_(layer),
        half_(half),
        work_(std::max<size_t>(work, 1)),
        out_(out),
        chunk_size_(size_t(extension.architecture().num_key_value_heads) * extension.cache_->head_stride()) {}

  /// Keys and values of the rows that will attend during the next `more` steps of work.
  ops::FetchList wanted(size_t more) {
    chunks_.clear();
    for (int i = done_; i < due(worked_ + more); ++i) {
      const int row = half_.first + i;
      for (int b = 0; b <= extension_.rows_.positions[size_t(row)] / block_positions; ++b)
        chunks_.push_back(extension_.cache_->keys(extension_.rows_.block_tables[size_t(row)][b], layer_, 0));
    }
    return {chunks_.data(), int(chunks_.size()), chunk_size_};
  }
  void after(size_t more) {
    worked_ += more;
    attend_until(due(worked_));
  }
  void finish() { attend_until(half_.count); }

 private:
  int due(size_t worked) const { return int(std::min<size_t>(size_t(half_.count), (size_t(half_.count) * worked + work_ - 1) / work_)); }

  void attend_until(int end) {
    if (end <= done_) return;
    const RowRange at{half_.first + done_, end - done_};
    extension_.rotate_and_store(layer_, at);
    extension_.device_.attend(*extension_.cache_, layer_, &extension_.rows_, at, extension_.qkv(at.first),
                              out_ + size_t(done_) * size_t(extension_.architecture().query_width()));
    done_ = end;
  }

  CpuExtension& extension_;
  const int layer_;
  const RowRange half_;
  const size_t work_;
  float* const out_;
  const size_t chunk_size_;
  size_t worked_ = 0;
  int done_ = 0;
  std::vector<const float*> chunks_;
};

/// Applies a linear layer panel by panel; after each panel, rows of the other half attend.
auto CpuExtension::beside(Attendance& others) {
  return [&](const CpuLinear& linear, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate, float* down) {
    const size_t inputs = size_t(linear.inputs());
    for (int panel = 0; panel < ops::panel_count(linear.outputs()); ++panel) {
      device_.op().matmul_fetching(x.data, x.ld, *linear.weight, panel, panel + 1, y.data, y.ld, rows, accumulate, others.wanted(inputs));
      others.after(inputs);
    }
    adapt_down(device_, linear, x, down, rows);
    finish<float>(device_, linear, down, y, rows);
  };
}

namespace {

/// The number of rows in one of the two halves is a multiple of this.
constexpr int tile_rows = CpuDevice::kernel_rows;

size_t steps(const CpuLinear& linear) { return size_t(linear.inputs()) * size_t(ops::panel_count(linear.outputs())); }

size_t steps(const CpuLinears& linear) { return steps(linear.output) + steps(linear.gate_up) + steps(linear.down); }

}  // namespace

bool CpuExtension::alone() const {
  if (rows_.wanted.size() != rows_.tokens.size()) return false;
  std::vector<uint8_t> written(size_t(cache_->block_capacity()), 0);
  const auto last = [&](int row) { return rows_.positions[size_t(row)] / block_positions; };
  for (int row = 0; row < rows_.size(); ++row) {
    uint8_t& mark = written[size_t(rows_.block_tables[size_t(row)][last(row)])];
    if (mark != 0) return false;
    mark = 1;
  }
  for (int row = 0; row < rows_.size(); ++row)
    for (int b = 0; b < last(row); ++b)
      if (written[size_t(rows_.block_tables[size_t(row)][b])] != 0) return false;
  return true;
}

bool CpuExtension::better_in_turns() const {
  constexpr int least_rows = 2 * tile_rows;  // rows of a half
  if (rows_.size() < 2 * least_rows * device_.threads()) return false;
  // Rows with a common prefix attend together, which reads the prefix once for all of them.
  int beginnings = 1;
  for (int row = 1; row < rows_.size(); ++row)
    beginnings += rows_.block_tables[size_t(row)][0] != rows_.block_tables[size_t(row) - 1][0];
  return 2 * beginnings >= rows_.size();
}

void CpuExtension::run_in_turns() {
  const int layers = architecture().num_hidden_layers;
  device_.feed_rows(rows_.size(), [&](RowRange at) {
    const int middle = at.count / 2 < tile_rows ? at.count / 2 : at.count / 2 / tile_rows * tile_rows;
    const RowRange front{at.first, middle}, back{at.first + middle, at.count - middle};
    const size_t query_width = size_t(architecture().query_width());
    float* attention = CpuDevice::scratch().attention.room(size_t(at.count) * query_width);
    float* back_attention = attention + size_t(front.count) * query_width;
    embed(at);
    Attendance nobody(*this, 0, {at.first, 0}, 1, nullptr);
    project_beside(0, front, nobody);
    Attendance first_of_all(*this, 0, front, steps(device_.linears(0).qkv), attention);
    project_beside(0, back, first_of_all);
    first_of_all.finish();
    for (int layer = 0; layer < layers; ++layer) {
      const bool more = layer + 1 < layers;
      const size_t work = steps(device_.linears(layer)) + (more ? steps(device_.linears(layer + 1).qkv) : 0);
      Attendance behind(*this, layer, back, work, back_attention);
      transform_beside(layer, front, attention, behind);
      behind.finish();
      Attendance next(*this, layer + 1, more ? front : RowRange{at.first, 0}, work, attention);
      transform_beside(layer, back, back_attention, next);
      next.finish();
    }
  });
}

void CpuExtension::transform_beside(int layer, RowRange half, const float* attention, Attendance& others) {
  float* gate_up = CpuDevice::scratch().gate_up.room(size_t(half.count) * 2 * size_t(architecture().intermediate_size));
  transform_rows(device_, layer, half, attention, hidden(half.first), gate_up, hidden(half.first), nullptr, beside(others));
  if (layer + 1 < architecture().num_hidden_layers) project_beside(layer + 1, half, others);
}

void CpuExtension::project_beside(int layer, RowRange half, Attendance& others) {
  project_rows(device_, layer, half, hidden(half.first), qkv(half.first), nullptr, beside(others));
}

}  // namespace longhaul
