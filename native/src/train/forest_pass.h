// Forward and backward of the policy over a forest, on one thread. Activations of the forward are kept for the backward; the
// memory is kept between passes.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "model/policy.h"
#include "train/forest.h"

namespace longhaul {

/// Called after each layer and each piece of the head, where given: a long pass can show that it gets on.
using OnAdvance = std::function<void()>;

class ForestPass {
 public:
  /// Computes the hidden states of `target_rows` (any order, repeats allowed; behind the last layer only these rows exist).
  void forward(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows, const OnAdvance& advanced = {});

  /// After `forward`: log softmax(logits / temperature) of each target's token.
  void logprobs(std::span<const int32_t> target_tokens, float temperature, std::span<float> out, const OnAdvance& advanced = {});

  /// Like `logprobs`, and the gradient: asks for ∂L/∂logprob of each target and adds ∂L/∂weights to `gradients`, laid out as
  /// the policy's weights are. `derivative(target, logprob)` is called once for each target, in order. `panels`: of the
  /// policy's `pack_backward`.
  void backward(const PolicyPanels& panels, std::span<const int32_t> target_tokens, float temperature,
                const std::function<double(size_t target, float logprob)>& derivative, float* gradients,
                const OnAdvance& advanced = {});

 private:
  struct LayerActivations {
    AlignedBuffer input, input_inverse, input_normed, qkv, heads_saved, heads_inverse, attention, log_sums;
    AlignedBuffer middle, middle_inverse, middle_normed, gate_up, activated;
  };
  /// A node's chain, and which of its rows a layer's output is wanted of.
  struct NodeQueries {
    std::vector<int32_t> chain;
    std::vector<int32_t> places, outputs;
  };

  void plan(std::span<const int32_t> target_rows);
  bool last(int layer) const;
  int outputs(int layer) const;
  void forward_layer(int layer);
  void backward_layer(int layer, float* gradients);
  void head(std::span<const int32_t> target_tokens, float temperature,
            const std::function<double(size_t, float)>* derivative, std::span<float> logprobs, float* gradients,
            const OnAdvance& advanced);
  /// gradients += dyᵀ · x
  void weight_gradient(const ParameterRange& range, const float* dy, const float* x, int rows, float* gradients);

  const Policy* policy_ = nullptr;
  /// Of the backward pass that runs.
  const PolicyPanels* backward_panels_ = nullptr;
  const Architecture* architecture_ = nullptr;
  const ops::Table* op_ = nullptr;
  const Forest* forest_ = nullptr;

  // Rows behind the last layer: the distinct target rows, ascending. `target_outputs_` maps targets to them.
  std::vector<int32_t> output_rows_;
  std::vector<int32_t> target_outputs_;
  std::vector<NodeQueries> all_queries_, output_queries_;

  std::vector<LayerActivations> layers_;
  AlignedBuffer final_, final_inverse_, final_normed_;
  AlignedBuffer d_hidden_, d_hidden_all_, d_normed_, d_attention_, d_qkv_, d_gate_up_, d_activated_, logits_, head_rows_, d_head_;
  ops::Panels panels_;
};

}  // namespace longhaul
