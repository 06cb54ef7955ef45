// The CPU as a device of passes: rows go in tiles to the threads of a pool, and a tile goes through as much of a layer as it can while it is
// in its core's caches.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu_pieces.h"
#include "backend/sharded_sums.h"
#include "base/thread_pool.h"
#include "model/inference/sample.h"
#include "model/optimizer.h"
#include "pass/feed_rows.h"
#include "pass/layer.h"
#include "pass/plan/pass_plan.h"

namespace longhaul {

class KvCache;
struct Oracle;

struct CpuArrays {
  const Forest* forest = nullptr;
  const PassPlan* plan = nullptr;
  const PassRange* pass = nullptr;
};

/// Working memory of one thread for one tile of rows. It is kept between calls: a decode step is too short to map fresh pages.
struct CpuScratch : RowScratch<CpuBuffer, float> {
  std::vector<int32_t> chain;
  CpuBuffer<float> sums, adapter_sums;
};

/// Packed weights and adapters, in the order that backward passes read them.
struct BackwardPanels {
  WeightPanels weights;
  std::vector<LayerAdapterPanels> adapters;
};

class CpuDevice {
 public:
  /// About the number of rows that a GEMM kernel takes at once.
  static constexpr int kernel_rows = 12;
  static constexpr size_t logits_bytes = size_t{64} << 20;

  using Activation = float;
  template <class T>
  using Buffer = CpuBuffer<T>;
  using Arrays = CpuArrays;
  using Operand = PackedRows;
  using Piece = CpuPiece;
  using Cache = KvCache;
  using FeedArrays = const FeedRows*;

  CpuDevice(ThreadPool& pool, ops::Arithmetic arithmetic = ops::Arithmetic::fp32)
      : pool_(pool), arithmetic_(arithmetic), pieces_(pool.threads()), sums_(pool) {}

  ThreadPool& pool() const { return pool_; }
  int threads() const { return pool_.threads(); }
  bool rounds() const { return arithmetic_ == ops::Arithmetic::bf16; }
  void hold(const Policy& policy) { policy_ = &policy; }
  void lay_out(CpuArrays& arrays, const Forest& forest, const PassPlan& plan, const PassRange& pass) const { arrays = {&forest, &plan, &pass}; }
  void lay_out(const FeedRows*& arrays, const FeedRows& rows) const { arrays = &rows; }
  /// Packs the weights of the held policy that are not packed.
  void start();
  /// Packs what backward passes read.
  void pack_backward();
  void drop_scratch() {}

  const Architecture& architecture() const { return policy_->architecture(); }
  const ParameterLayout& layout() const { return policy_->layout(); }
  const ops::Table& op() const { return *op_; }
  const Weights& weights() const { return policy_->weights().computed(arithmetic_); }
  bool frozen() const { return policy_->adapters() != nullptr; }
  const float* embedding() const { return weights().at(layout().embedding); }
  /// Views, valid until weights or panels change.
  const CpuLinears& linears(int layer) const { return linears_[size_t(layer)]; }
  const CpuLinears& backward_linears(int layer) const { return backward_linears_[size_t(layer)]; }

  float* zeros(CpuBuffer<float>& buffer, size_t n);
  template <class T>
  void put(const auto& values, CpuBuffer<T>& to) const {
    std::copy(values.begin(), values.end(), to.room(values.size()));
  }
  std::span<const float> read(const CpuBuffer<float>& from, size_t n) { return {from.data(), n}; }

  /// Enough tiles for all threads, and few enough rows for a core's cache.
  template <class Work>
  void rows(int count, Work&& work) {
    tiles(count, tile_rows(count, 48, 192), work);
  }
  template <class Work>
  void head_rows(int count, Work&& work) {
    tiles(count, tile_rows(count, 12, 96), work);
  }
  /// Units are of equal size and as large as their activations allow, since each reads all weights of a layer; each thread gets the same
  /// number of units.
  template <class Work>
  void feed_rows(int count, Work&& work) const {
    if (count > 0) tiles(count, unit_rows(count), work);
  }
  int unit_rows(int count) const;
  template <class Work>
  void tiles(int count, int rows, Work&& work) const {
    pool_.parallel_for(size_t(count + rows - 1) / rows,
                       [&](size_t t) { work(RowRange{int(t) * rows, std::min(rows, count - int(t) * rows)}); });
  }

  template <class Work>
  void pieces(const std::vector<PieceRange>& pieces, int layer, float* gradients, Work&& work) {
    const auto sums = [&](const ParameterRange& range, const PieceRange& piece) { return gradient_sums(range, piece, gradients); };
    pieces_.run(pieces, *this, backward_linears(layer), gradients, sums, work);
  }
  bool sums_by_piece() const { return rounds(); }

  /// The calling thread's.
  static CpuScratch& scratch() {
    static thread_local CpuScratch space;
    return space;
  }
  /// Where to write rows that the backward pass reads if `kept`.
  static float* place(CpuBuffer<float>& rows, CpuBuffer<float>& scratch, RowRange at, size_t width, bool kept) {
    return kept ? rows.row(at.first, width) : scratch.room(size_t(at.count) * width);
  }

  void clear(float* values, size_t n) const { std::memset(values, 0, n * sizeof(float)); }
  void gather(Matrix<const float> from, const int32_t* indices, Matrix<float> to, int rows, int width) const;
  void scatter(Matrix<const float> from, const int32_t* indices, Matrix<float> to, int rows, int width) const;
  /// In fp32, also where activations are bf16.
  void product(const ops::Panels* weight, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate) const {
    op_->matmul(x.data, x.ld, *weight, y.data, y.ld, rows, accumulate);
  }
  /// With panels of columns.
  void product_backward(const ops::Panels* weight, Matrix<const float> dy, Matrix<float> dx, int rows, bool accumulate) const {
    product(weight, dy, dx, rows, accumulate);
    round(dx, rows, weight->columns);
  }
  void linear(const CpuLinear& linear, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate, float* down) const {
    if (rounds()) return rounded_linear(linear, x, y, rows, accumulate, down);
    apply(*this, linear, x, y, rows, accumulate, down);
  }
  void linear_backward(const CpuLinear& linear, Matrix<const float> dy, float* dx, int rows, float* d_down) const {
    if (rounds()) return rounded_linear_backward(linear, dy, dx, rows, d_down);
    apply_backward(*this, linear, dy, dx, rows, d_down);
  }
  void round(Matrix<float> x, int rows, int width) const {
    if (rounds()) op_->round_rows(x.data, x.ld, rows, width);
  }
  void scale(Matrix<float> x, float factor, int rows, int width) const { op_->scale_rows(x.data, x.ld, factor, rows, width); }
  void add_bias(Matrix<float> y, const float* bias, int rows, int width) const { op_->add_bias(y.data, y.ld, bias, rows, width); }
  void rms_norm(const float* x, const ParameterRange& norm, float* y, float* inverse, int rows) const {
    op_->rms_norm(x, weights().at(norm), eps(), y, inverse, rows, architecture().hidden_size);
  }
  /// Norm (unless the range is empty) and rotation of queries or keys.
  void rotate(Matrix<float> x, const ParameterRange& norm, const int32_t* positions, Matrix<float> saved, Matrix<float> inverse, int rows,
              int heads) const {
    op_->head_norm_rope(x.data, x.ld, norm.empty() ? nullptr : weights().at(norm), eps(), positions, weights().rope().cos(),
                        weights().rope().sin(), saved.data, saved.ld, inverse.data, inverse.ld, rows, heads, architecture().head_dim);
  }
  void swiglu(const float* gate_up, float* y, int rows) const { op_->swiglu(gate_up, y, rows, architecture().intermediate_size); }
  void swiglu_backward(const float* gate_up, const float* dy, float* d_gate_up, int rows) const {
    op_->swiglu_backward(gate_up, dy, d_gate_up, rows, architecture().intermediate_size);
  }

  const ops::Panels* head() const { return &weights().forward_panels().head; }
  const ops::Panels* backward_head() const { return &panels_.weights.head; }
  void row_logprobs(const float* logits, int rows, float inverse_temperature, const int32_t* tokens, ops::RowNormalizer* normalizers,
                    float* logprobs, float* entropies) const;
  void softmax_gradient(float* logits, int rows, float inverse_temperature, const int32_t* tokens, const ops::RowNormalizer* normalizers,
                        const float* scales, const float* entropies, const float* entropy_scales) const;
  void resize(PackedRows& rows, int count, int width) { rows.resize(count, width); }
  void write(PackedRows& rows, Matrix<const float> x, RowRange at) { rows.write(x.data, x.ld, at.first, at.count); }
  void add_head_gradient(const float* d_logits, const PackedRows& x, const PieceRange& chunk, float* gradients);
  /// to[i] = the sum of list i.
  void sum_rows(Matrix<const float> from, RowLists lists, Matrix<float> to, int width) const;
  /// to[targets[i]] += the rows of list i, on all threads.
  void add_rows(Matrix<const float> from, RowLists lists, const int32_t* targets, Matrix<float> to, int width) const;

  void attention(const CpuArrays& arrays, const ForestAttention<float>& attention) const;
  /// The segments of a tree add to the gradients of the same keys and values. So the segments of a tree run one after another, from the last
  /// to the first; KV heads and trees run independently.
  void attention_backward(const CpuArrays& arrays, const ForestAttention<float>& forward, const ForestAttentionGradients<float>& to) const;

  void store(KvCache& cache, int layer, const FeedRows* rows, RowRange at, const float* qkv) const;
  void attend(KvCache& cache, int layer, const FeedRows* rows, RowRange at, const float* qkv, float* out) const;
  /// Rows that attend together, few enough that their scores stay in the cache.
  int attention_rows(const FeedRows& rows) const;
  void draw(const float* logits, int rows, std::span<const DrawRequest> draws, std::span<Drawn> drawn) const;

  /// The CPU is the oracle.
  void check_gradient(const Oracle&, std::uint64_t) const {}
  void finish_gradients(float* gradients) { sums_.finish(gradients); }
  double gradient_norm(const Policy& policy, const float* gradients) const { return longhaul::gradient_norm(policy, gradients, pool_); }
  void step(Policy& next, const Policy& from, bool reset_moments, const float* gradients, const ops::AdamStep& step) {
    optimizer_step(next, from, reset_moments, gradients, step, pool_);
    changed_ = true;
  }
  void collect(Policy& next) const { next.pack_forward(&pool_, arithmetic_); }
  void give_up() noexcept { changed_ = true; }

 private:
  /// Of a linear layer in bf16: each product is a chain of its own; their sum in fp32, and that of the residual stream, are rounded once.
  void rounded_linear(const CpuLinear& linear, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate, float* down) const;
  void rounded_linear_backward(const CpuLinear& linear, Matrix<const float> dy, float* dx, int rows, float* d_down) const;
  /// Where the rows of a piece are added to the gradient of a matrix.
  float* gradient_sums(const ParameterRange& range, const PieceRange& piece, float* gradients);
  size_t hidden() const { return size_t(architecture().hidden_size); }
  size_t vocabulary() const { return size_t(architecture().vocab_size); }
  ops::ChainAttention chain_attention(const CpuArrays& arrays, const ForestAttention<float>& attention, int segment, int kv_head) const;
  float eps() const { return float(architecture().rms_norm_eps); }
  int tile_rows(int count, int least, int most) const {
    const int share = (count + 4 * threads() - 1) / (4 * threads());
    return std::clamp((share + kernel_rows - 1) / kernel_rows * kernel_rows, least, most);
  }
  ThreadPool& pool_;
  ops::Arithmetic arithmetic_;
  const ops::Table* op_ = nullptr;
  const Policy* policy_ = nullptr;
  std::vector<CpuLinears> linears_, backward_linears_;
  BackwardPanels panels_;
  CpuPieces pieces_;
  ShardedSums sums_;
  bool changed_ = true;  // trained values may have, since their panels were packed
  const Policy* packed_policy_ = nullptr;
  std::weak_ptr<const Weights> packed_base_;  // frozen weights with packed panels
};

}  // namespace longhaul
