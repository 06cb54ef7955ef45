// A GPU as a device of passes: every operation is launched over all rows of a pass.
#pragma once

#include <span>
#include <vector>

#include "cuda/host/device_cache.h"
#include "cuda/host/device_forest.h"
#include "cuda/host/training/cuda_piece.h"
#include "cuda/host/training/device_optimizer.h"
#include "cuda/host/training/gradient_check.h"
#include "cuda/kernels/head.h"
#include "model/inference/sample.h"
#include "pass/layer.h"
#include "pass/plan/pass_plan.h"
#include "pass/rows.h"

namespace longhaul::cuda {

/// The policies that a backend has on its device.
class DevicePolicies {
 public:
  virtual ~DevicePolicies() = default;
  /// Copies the held policy if the device has other values. Throws std::logic_error if the policy is not held.
  virtual DeviceModel& model_of(const Policy& policy) = 0;
  /// The held policy's moments.
  virtual DeviceMoments& moments() = 0;
  /// From now on the held model is this policy, which has been stepped to.
  virtual void stepped_to(const Policy& next) = 0;
  /// Forgets values that are not the held policy's. They are copied again when they are needed.
  virtual void forget_steps() noexcept = 0;
};

/// Working memory of a pass's rows.
struct CudaScratch : RowScratch<Buffer, float> {
  Buffer<float> d_gate_up, blocks, pulls;
  Buffer<RowDraw> draws;
  Buffer<DrawnToken> drawn;
};

class CudaDevice {
 public:
  static constexpr size_t logits_bytes = size_t{256} << 20;

  using Activation = float;
  template <class T>
  using Buffer = cuda::Buffer<T>;
  using Arrays = DeviceForestPass;
  using Operand = ConstRows;
  using Piece = CudaPiece;
  using Cache = DeviceCache;
  using FeedArrays = DeviceFeedArrays;

  CudaDevice(DevicePolicies& policies, Stream stream) : policies_(policies), stream_(stream) {}

  int threads() const { return 1; }
  void hold(const Policy& policy) { model_ = &policies_.model_of(policy); }
  void lay_out(DeviceForestPass& arrays, const Forest& forest, const PassPlan& plan, const PassRange& pass) const {
    arrays.put(forest, plan, pass, architecture().queries_per_key_value(), stream_);
  }
  void lay_out(DeviceFeedArrays& arrays, const FeedRows& rows) const { arrays.put(rows, architecture().queries_per_key_value(), stream_); }
  void start() {}
  void pack_backward() {}
  void drop_scratch() { scratch_ = {}; }

  const Architecture& architecture() const { return model_->architecture(); }
  const ParameterLayout& layout() const { return model_->layout(); }
  const DeviceModel& model() const { return *model_; }
  const float* embedding() const { return model_->at(layout().embedding); }
  const DeviceLinears& linears(int layer) const { return model_->linears(layer); }
  const DeviceLinears& backward_linears(int layer) const { return model_->linears(layer); }
  GradientCheck& check() { return check_; }
  Stream stream() const { return stream_; }

  float* zeros(Buffer<float>& buffer, size_t n) { return buffer.zeros(n, stream_); }
  template <class T>
  void put(const auto& values, Buffer<T>& to) const {
    to.put(std::span<const T>(values), stream_);
  }
  /// Valid until the next call.
  std::span<const float> read(const Buffer<float>& from, size_t n);

  template <class Work>
  void rows(int count, Work&& work) {
    if (count > 0) work(RowRange{0, count});
  }
  template <class Work>
  void head_rows(int count, Work&& work) {
    rows(count, work);
  }
  template <class Work>
  void feed_rows(int count, Work&& work) {
    rows(count, work);
  }
  template <class Work>
  void pieces(const std::vector<PieceRange>& pieces, int, float* gradients, Work&& work) {
    if (pieces.empty()) return;
    CudaPiece all(pieces, *this, gradients);
    work(all);
  }
  CudaScratch& scratch() { return scratch_; }
  /// All rows of a pass at once would need as much scratch as the buffer has.
  static float* place(Buffer<float>& rows, Buffer<float>&, RowRange at, size_t width, bool) { return rows.rows(at.count, width); }

  void clear(float* values, size_t n) const { device_zero(values, n, stream_); }
  void gather(Matrix<const float> from, const int32_t* indices, Matrix<float> to, int rows, int width) const {
    gather_rows({from.data, from.ld}, indices, {to.data, to.ld}, rows, width, stream_);
  }
  void scatter(Matrix<const float> from, const int32_t* indices, Matrix<float> to, int rows, int width) const {
    scatter_rows({from.data, from.ld}, indices, {to.data, to.ld}, rows, width, stream_);
  }
  void product(const DeviceMatrix& w, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate) const;
  void product_backward(const DeviceMatrix& w, Matrix<const float> dy, Matrix<float> dx, int rows, bool accumulate) const;
  void linear(const DeviceLinear& linear, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate, float* down) const {
    apply(*this, linear, x, y, rows, accumulate, down);
  }
  void scale(Matrix<float> x, float factor, int rows, int width) const { scale_rows({x.data, x.ld}, factor, rows, width, stream_); }
  void add_bias(Matrix<float> y, const float* bias, int rows, int width) const { cuda::add_bias({y.data, y.ld}, bias, rows, width, stream_); }
  void rms_norm(const float* x, const ParameterRange& norm, float* y, float* inverse, int rows) const {
    model_->rms_norm(x, norm, y, inverse, rows, stream_);
  }
  void rotate(Matrix<float> x, const ParameterRange& norm, const int32_t* positions, Matrix<float> saved, Matrix<float> inverse, int rows,
              int heads) const {
    head_norm_rope({model_->heads(x.data, norm, positions, rows, heads), float(architecture().rms_norm_eps), saved.data, saved.ld, inverse.data,
                    inverse.ld},
                   stream_);
  }
  void swiglu(const float* gate_up, float* y, int rows) const { cuda::swiglu(gate_up, y, rows, architecture().intermediate_size, stream_); }
  void swiglu_backward(const float* gate_up, const float* dy, float* d_gate_up, int rows) const {
    cuda::swiglu_backward(gate_up, dy, d_gate_up, rows, architecture().intermediate_size, stream_);
  }

  DeviceMatrix head() const { return {model_->at(layout().head), layout().head.rows, layout().head.columns}; }
  DeviceMatrix backward_head() const { return head(); }
  void row_logprobs(const float* logits, int rows, float inverse_temperature, const int32_t* tokens, ops::RowNormalizer* normalizers,
                    float* logprobs, float* entropies) const;
  void softmax_gradient(float* logits, int rows, float inverse_temperature, const int32_t* tokens, const ops::RowNormalizer* normalizers,
                        const float* scales, const float* entropies, const float* entropy_scales) const;
  void resize(ConstRows&, int, int) {}
  void write(ConstRows& all, Matrix<const float> x, RowRange) { all = {x.data, x.ld}; }
  void add_head_gradient(const float* d_logits, ConstRows x, const PieceRange& chunk, float* gradients) const;
  static bool sums_by_piece() { return false; }
  void round(Matrix<float>, int, int) const {}
  void sum_rows(Matrix<const float> from, longhaul::RowLists lists, Matrix<float> to, int width) const {
    cuda::sum_rows({from.data, from.ld}, {lists.starts, lists.indices, lists.count}, {to.data, to.ld}, width, stream_);
  }
  void add_rows(Matrix<const float> from, longhaul::RowLists lists, const int32_t* targets, Matrix<float> to, int width) const {
    cuda::add_rows({from.data, from.ld}, {lists.starts, lists.indices, lists.count}, targets, {to.data, to.ld}, width, stream_);
  }

  void attention(DeviceForestPass& arrays, const ForestAttention<float>& attention) const;
  void attention_backward(DeviceForestPass& arrays, const ForestAttention<float>& forward, const ForestAttentionGradients<float>& to);

  void store(DeviceCache& cache, int layer, DeviceFeedArrays& arrays, RowRange at, const float* qkv) const;
  void attend(DeviceCache& cache, int layer, DeviceFeedArrays& arrays, RowRange, const float* qkv, float* out) const;
  void draw(const float* logits, int rows, std::span<const DrawRequest> draws, std::span<Drawn> drawn);

  void check_gradient(const Oracle& oracle, std::uint64_t choice) { check_.choose(*model_, oracle, choice, stream_); }
  void finish_gradients(const float* gradients) { check_.finish(gradients); }
  double gradient_norm(const Policy& policy, const float* gradients) { return optimizer_.norm(policy, gradients, stream_); }
  void step(Policy& next, const Policy& from, bool reset_moments, const float* gradients, const ops::AdamStep& step);
  void collect(Policy& next);
  void give_up() noexcept {
    check_.forget();
    policies_.forget_steps();
  }

 private:
  Attention launched(DeviceQueries& queries, const Past& past, const float* qkv, float* out, float* log_sums) const;
  Attention launched(DeviceForestPass& arrays, const ForestAttention<float>& attention) const;

  DevicePolicies& policies_;
  Stream stream_;
  DeviceModel* model_ = nullptr;
  CudaScratch scratch_;
  GradientCheck check_;
  DeviceOptimizer optimizer_;
  std::vector<float> read_;
};

}  // namespace longhaul::cuda
