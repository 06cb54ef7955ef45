// A call of `extend` on any device: some rows through all layers, over a cache of keys and values, and a draw behind each feed that wants
// logits. A row's bits depend only on its own tokens, never on the other rows of the call, so log-probs equal those of training bit for bit.
//
// Beside what training asks for (forest_pass.h), a device gives:
// - `Cache`, its BlockCache, and `FeedArrays`, what store and attend read of rows: `lay_out`.
// - `feed_rows(n, work)`: as `rows`.
// - operations on such rows: store, attend, draw.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "model/inference/sample.h"
#include "pass/arrays.h"
#include "pass/layer.h"

namespace longhaul {

/// Most rows of logits that exist at once.
template <class Device>
constexpr int most_logit_rows(int vocab) {
  return std::max(int(Device::logits_bytes / (size_t(vocab) * sizeof(float))), 16);
}

/// Keeps its working memory between calls.
template <class Device>
class Extension {
 public:
  explicit Extension(Device device) : device_(std::move(device)) {}
  virtual ~Extension() = default;

  /// See Backend::extend.
  void run(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws, std::span<Drawn> drawn) {
    forward(policy, cache, feeds);
    const int wanted = int(rows_.wanted.size()), most = most_logit_rows<Device>(policy.architecture().vocab_size);
    for (int first = 0; first < wanted; first += most) {
      const int count = std::min(most, wanted - first);
      const float* all = logits({first, count});
      device_.draw(all, count, draws.subspan(size_t(first), size_t(count)), drawn.subspan(size_t(first), size_t(count)));
    }
  }

  /// The part of `run` before the head.
  void forward(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds) {
    validate(feeds, policy.architecture(), cache.block_capacity());
    rows_ = FeedRows(feeds);
    if (feeds.empty()) return;
    cache_ = &dynamic_cast<typename Device::Cache&>(cache);
    device_.hold(policy);
    device_.start();
    arrays_.put(device_, rows_);
    hidden_.rows(rows_.size(), width());
    qkv_.rows(rows_.size(), qkv_width());
    through_layers();
  }

  /// [targets.count, vocab] of the last call's feeds that want logits; valid until the next call.
  const float* logits(RowRange targets) {
    float* all = logits_.room(size_t(targets.count) * size_t(architecture().vocab_size));
    kept_.rows(targets.count, width());
    head(targets, all);
    return all;
  }

 protected:
  using Activation = typename Device::Activation;

  const Architecture& architecture() const { return device_.architecture(); }
  size_t width() const { return size_t(architecture().hidden_size); }
  size_t qkv_width() const { return size_t(architecture().qkv_width()); }
  Activation* hidden(int row) { return hidden_.row(row, width()); }
  Activation* qkv(int row) { return qkv_.row(row, qkv_width()); }

  virtual void through_layers() {
    const int layers = architecture().num_hidden_layers;
    device_.feed_rows(rows_.size(), [&](RowRange at) {
      embed(at);
      project(0, at);
    });
    for (int layer = 0; layer < layers; ++layer) {
      // After the keys and values of the last layer, only rows with wanted logits matter.
      if (layer + 1 == layers) keep_wanted();
      // All rows' keys of a layer are written before any row of the call attends to them.
      device_.feed_rows(rows_.size(), [&](RowRange at) {
        attend_and_transform(layer, at);
        if (layer + 1 < layers) project(layer + 1, at);
      });
    }
  }

  virtual void head(RowRange targets, float* logits) {
    device_.feed_rows(targets.count, [&](RowRange at) {
      Activation* normed = device_.scratch().normed.room(size_t(at.count) * width());
      norm_wanted(targets, at, normed);
      const size_t vocab = size_t(architecture().vocab_size);
      device_.product(device_.head(), {normed, width()}, {logits + size_t(at.first) * vocab, vocab}, at.count, false);
    });
  }

  void norm_wanted(RowRange targets, RowRange at, Activation* normed) {
    Activation* rows = kept_.row(at.first, width());
    device_.gather({hidden_.data(), width()}, arrays_.wanted.data() + targets.first + at.first, {rows, width()}, at.count, int(width()));
    device_.rms_norm(rows, device_.layout().final_norm, normed, nullptr, at.count);
  }

  void embed(RowRange at) {
    device_.gather({device_.embedding(), width()}, arrays_.tokens.data() + at.first, {hidden(at.first), width()}, at.count, int(width()));
  }

  void rotate_and_store(int layer, RowRange at) {
    rotate_rows(device_, layer, qkv(at.first), arrays_.positions.data() + at.first, at.count, nullptr, nullptr);
    device_.store(*cache_, layer, arrays_.own, at, qkv(at.first));
  }

  /// Computes queries, keys and values of a layer; keys and values go to the cache.
  void project(int layer, RowRange at) {
    project_rows(device_, layer, at, hidden(at.first), qkv(at.first), nullptr, applied_by(device_));
    rotate_and_store(layer, at);
  }

  void attend_and_transform(int layer, RowRange at) {
    Activation* attention = device_.scratch().attention.room(size_t(at.count) * size_t(architecture().query_width()));
    device_.attend(*cache_, layer, arrays_.own, at, qkv(at.first), attention);
    Activation* gate_up = device_.scratch().gate_up.room(size_t(at.count) * 2 * size_t(architecture().intermediate_size));
    transform_rows(device_, layer, at, attention, hidden(at.first), gate_up, hidden(at.first), nullptr, applied_by(device_));
  }

  /// Keeps only the rows with wanted logits and moves them to the front, in their order.
  void keep_wanted() {
    if (rows_.wanted.size() == rows_.tokens.size()) return;
    const std::vector<int32_t> kept = rows_.keep_wanted();
    if (kept.empty()) return;
    arrays_.put(device_, rows_);
    device_.put(kept, arrays_.kept);
    const auto keep = [&](Activations<Device>& from, Activations<Device>& to, size_t width) {
      to.rows(rows_.size(), width);
      device_.gather({from.data(), width}, arrays_.kept.data(), {to.data(), width}, rows_.size(), int(width));
      from.swap(to);
    };
    keep(hidden_, kept_, width());
    keep(qkv_, kept_qkv_, qkv_width());
  }

  Device device_;
  typename Device::Cache* cache_ = nullptr;
  FeedRows rows_;
  FeedArrays<Device> arrays_;
  Activations<Device> hidden_, kept_, qkv_, kept_qkv_;
  typename Device::template Buffer<float> logits_;
};

}  // namespace longhaul
