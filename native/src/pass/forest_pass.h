// Forward and backward of a policy over a mini-batch's forest, on any device, in passes of bounded size. The bits depend only on forest,
// targets and weights, not on the device, the size of a pass, recomputation, or the number of threads.
//
// Canonical order. Rows are cut into pieces of 512, counted from the first row of the forest. Gradients go over pieces from the last to the
// first and, within a piece, row by row (weight gradients: one FMA chain; norms and biases: sums of blocks of 64 rows, added from the last
// block to the first). Attention adds to the gradients of keys and values node by node, from the last node (cut at pieces) to the first.
// Targets are ordered by the piece of their row, from the last to the first; within a piece by row; targets of one row in the order of
// `target_rows`. The head's gradient is one chain over them. Embedding rows are summed separately and added last, since a tied head's chain
// comes before them.
//
// What a pass does is written once, in driver.h, forward.h, layer.h, head.h and backward.h. A device gives what CpuDevice
// (backend/cpu_device.h) does:
// - `Buffer<T>`, memory that is kept between calls: `room(n)` for n values, `rows(n, width)` for rows, rounded up if that spares fresh
//   pages, `row(i, width)`. `Activation` is the type of activations, `Operand` what a gradient's product reads.
// - `rows(n, work)` and `head_rows(n, work)`: work(range) for ranges that make up n rows, at the same time: a CPU cuts tiles for its threads
//   and caches, a GPU launches once. What only one range reads goes to `scratch()`.
// - `linears(layer)` and `head()`, matrices, and `backward_linears(layer)` and `backward_head()`, the same for backward products.
// - operations on such rows: gather, linear, rms_norm, rotate, swiglu, product (of the head), row_logprobs, softmax_gradient, round (what was
//   added up, where activations have fewer bits).
// - `pieces(pieces, layer, gradients, work)`: work(piece) for a `Piece` of rows at a time, a CPU's tile or all rows of a GPU. Its operations
//   compute the gradients of rows, and add to `gradients` what the rows of each of `pieces` give, in order; `finish_gradients` is called when
//   all have. `sums_by_piece`: whether a chunk of the head may not reach over the end of a piece.
// - operations on all rows: attention, add_rows.
// - `Arrays`, what attention reads of a pass beside PassArrays: `lay_out`.
// - the steps of an update: check_gradient, gradient_norm, step, collect, give_up (training.h).
#pragma once

#include <utility>
#include <vector>

#include "pass/arrays.h"
#include "pass/layer.h"
#include "pass/plan/pass_plan.h"
#include "pass/rows.h"
#include "pass/training.h"

namespace longhaul {

/// The activations that a forward pass keeps for a backward pass: none; each layer's input and all of the last layer's; or all.
enum class Keep { nothing, inputs, everything };

template <class Device>
class ForestPass : public Training {
 public:
  explicit ForestPass(Device device, ForestPassSettings settings = {}) : device_(std::move(device)), settings_(settings) {}
  ~ForestPass() override { device_.give_up(); }

  void prepare(const ForestPassSettings& settings, int most_rows) override;
  void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows, std::span<const int32_t> target_tokens,
             float temperature, OnAdvance advanced = {}, OnAdvance passed = {}) override;
  void logprobs(std::span<float> out) override { logprobs(out, {}); }
  /// Also fills `entropies` [M] unless it is empty.
  void logprobs(std::span<float> out, std::span<float> entropies);
  void gradient(const Derive& derive, bool trains_entropy) override;
  /// Adds to `gradients`, in the device's memory, laid out as policy.trained().
  void gradient(const Derive& derive, bool trains_entropy, float* gradients);
  void check_gradient(const Oracle& oracle, std::uint64_t choice) override { device_.check_gradient(oracle, choice); }
  double gradient_norm() override { return device_.gradient_norm(*policy_, gradients_); }
  void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
            const OptimizerSettings& settings) override;
  void collect(Policy& next) override { device_.collect(next); }
  void give_up() noexcept override { device_.give_up(); }

 private:
  template <class T>
  using Buffer = typename Device::template Buffer<T>;
  using Activation = typename Device::Activation;
  using Piece = typename Device::Piece;

  const Architecture& architecture() const { return policy_->architecture(); }
  const LayerParameters& parameters(int layer) const { return policy_->layout().layers[size_t(layer)]; }
  bool frozen() const { return policy_->adapters() != nullptr; }
  bool last(int layer) const { return layer + 1 == architecture().num_hidden_layers; }
  bool several_passes() const { return plan_.passes.size() > 1; }
  /// Whether the forward pass kept all that `backward_layer` reads.
  bool kept(int layer) const { return keep_ == Keep::everything || (keep_ == Keep::inputs && last(layer)); }
  LayerActivations<Device>& activations(int layer) { return layers_[keep_ == Keep::everything ? size_t(layer) : 0]; }
  Activations<Device>& input(int layer) { return inputs_[keep_ == Keep::nothing ? 0 : size_t(layer)]; }
  int outputs(const PassRange& pass, int layer) const { return last(layer) ? pass.outputs : pass.rows; }
  PassArrays<Device>& arrays(const PassRange& pass) { return arrays_[size_t(&pass - plan_.passes.data())]; }

  Device device_;
  ForestPassSettings settings_;
  /// Rows of the largest pass that there has been memory for.
  int held_rows_ = 0;

  // Set by `begin`.
  const Policy* policy_ = nullptr;
  const Forest* forest_ = nullptr;
  float inverse_temperature_ = 1;
  OnAdvance advanced_, passed_;
  PassPlan plan_;
  std::vector<PassArrays<Device>> arrays_;

  // Forward pass.
  Keep keep_ = Keep::nothing;
  std::vector<Activations<Device>> inputs_;         // [layers], or one that all layers work in
  std::vector<LayerActivations<Device>> layers_;    // [layers], or a single one that all layers use
  Activations<Device> last_hidden_, final_normed_;
  Buffer<float> final_inverse_;
  std::vector<Activations<Device>> keys_values_;    // [layers], of all rows of the forest; only with several passes

  // Head, in canonical order of targets.
  Activations<Device> logits_, d_targets_;
  typename Device::Operand head_inputs_;
  Buffer<ops::RowNormalizer> normalizers_;
  Buffer<float> row_logprobs_, row_entropies_, scales_, entropy_scales_;
  bool logits_kept_ = false, with_entropy_ = false, trains_entropy_ = false;
  // In the order in which the targets were given.
  std::vector<float> logprobs_, entropies_;
  std::vector<double> derivatives_, entropy_derivatives_;

  // Backward pass. In the last layer `d_hidden_` has the rows of outputs, until they are scattered.
  Activations<Device> d_hidden_, d_hidden_all_, d_attention_, d_qkv_;
  Activations<Device> d_embedding_;                 // [distinct tokens, hidden]
  Buffer<int32_t> embedding_starts_, embedding_tokens_;
  std::vector<Activations<Device>> d_keys_values_;  // as keys_values_
  /// What the gradient is added to; `own_gradients_` is its memory unless the caller gives it.
  float* gradients_ = nullptr;
  Buffer<float> own_gradients_;

  static void tell(const OnAdvance& whom) {
    if (whom) whom();
  }
  void start(bool entropy);
  void drop_activations();
  void add_embedding_gradient();

  // forward.h
  /// `store_keys`: with several passes, also writes its rows' keys and values to `keys_values_`.
  void forward(const PassRange& pass, Keep keep, bool store_keys);
  /// Recomputes, from the layer's input, the activations that `backward_layer` reads.
  void recompute(const PassRange& pass, int layer);
  void prepare_forward(const PassRange& pass);
  ForestAttention<Activation> attention_of(int layer, bool saving);
  void attend(const PassRange& pass, int layer, bool saving);
  void project(const PassRange& pass, int layer, RowRange at, bool saving, bool store_keys);
  void transform(const PassRange& pass, int layer, RowRange at, bool saving, bool output_wanted);

  // head.h
  /// Targets whose logits exist at once.
  std::vector<PieceRange> target_chunks(const PassRange& pass) const;
  void prepare_chunk(int targets);
  void compute_logits(const PassRange& pass, int first, RowRange at);
  /// Log-probs (and entropies) of the pass's targets; keeps their logits if `keep_logits`.
  void head_logprobs(const PassRange& pass, bool keep_logits);
  /// Computes d_targets of the pass and adds the head's gradient.
  void head_gradient(const PassRange& pass);

  // backward.h
  void prepare_backward(const PassRange& pass);
  void backward(const PassRange& pass);
  void backward_layer(const PassRange& pass, int layer);
  void transform_backward(const PassRange& pass, int layer, Piece& piece);
  void attend_backward(const PassRange& pass, int layer);
  void project_backward(const PassRange& pass, int layer, Piece& piece);
  void linear_backward(int layer, Part part, Piece& piece, Matrix<const Activation> dy, Matrix<const Activation> x, Activation* dx);
};

}  // namespace longhaul
