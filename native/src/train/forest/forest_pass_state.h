// The internals of ForestPass. Rows and outputs are numbered within a pass unless said otherwise: row 0 is the pass's first.
#pragma once

#include <memory>
#include <vector>

#include "model/linear.h"
#include "train/backward_linear.h"
#include "train/forest/forest_activations.h"
#include "train/forest/forest_pass.h"
#include "train/forest/forest_pass_plan.h"

namespace longhaul {

/// The activations that a forward pass keeps for a backward pass: none; each layer's input and all of the last layer's; or all.
enum class Keep { nothing, inputs, everything };

constexpr int norm_block_rows = 64;

struct ForestPass::State {
  explicit State(ThreadPool& the_pool, ForestPassSettings the_settings)
      : pool(the_pool), settings(the_settings), work(the_pool.threads()) {}

  ThreadPool& pool;
  ForestPassSettings settings;

  // Set by `begin`.
  const Policy* policy = nullptr;
  const Forest* forest = nullptr;
  const ops::Table* op = nullptr;
  std::span<const int32_t> target_tokens;
  float inverse_temperature = 1;
  OnAdvance advanced, passed;
  PassPlan plan;
  std::vector<LayerLinears> linears;

  // Forward pass.
  Keep keep = Keep::nothing;
  std::vector<AlignedBuffer> inputs;  // [layers], or one that all layers work in
  std::vector<LayerActivations> layers;  // [layers], or a single one that all layers use
  AlignedBuffer last_hidden{BufferMemory::mapped}, final_normed{BufferMemory::mapped}, final_inverse;
  /// [layers]: keys, then values, of all rows of the forest. Only with several passes.
  std::vector<AlignedBuffer> kept_keys_values, d_kept_keys_values;

  // Head, in canonical order of targets.
  PackedRows head_rows;  // the inputs of the logits
  AlignedBuffer logits{BufferMemory::mapped}, d_targets{BufferMemory::mapped};
  std::vector<ops::RowNormalizer> normalizers;
  bool logits_kept = false;
  bool with_entropy = false, trains_entropy = false;
  // In the order in which the targets were given.
  std::vector<float> logprobs, entropies;
  std::vector<double> derivatives, entropy_derivatives;

  // Backward pass.
  BackwardPanels panels;
  std::vector<BackwardLinears> backwards;
  const Policy* packed_policy = nullptr;
  std::weak_ptr<const Weights> packed_base;  // frozen weights with packed panels
  bool stale = true;
  AlignedBuffer d_hidden{BufferMemory::mapped}, d_hidden_all{BufferMemory::mapped}, d_attention{BufferMemory::mapped},
      d_qkv{BufferMemory::mapped};
  AlignedBuffer d_embedding{BufferMemory::mapped};  // [distinct tokens, hidden]
  PieceSpace pieces[2];
  GradientWork work;

  const Architecture& architecture() const { return policy->architecture(); }
  const Weights& weights() const { return policy->weights(); }
  const LayerParameters& parameters(int layer) const { return policy->layout().layers[layer]; }
  bool frozen() const { return policy->adapters() != nullptr; }
  bool last(int layer) const { return layer + 1 == architecture().num_hidden_layers; }
  bool several_passes() const { return plan.passes.size() > 1; }
  float eps() const { return float(architecture().rms_norm_eps); }
  void tell(const OnAdvance& whom) const {
    if (whom) whom();
  }

  // forest_pass.cc
  void start(bool entropy);
  void pack_backward();

  // forest_forward.cc
  /// `store_keys`: with several passes, also writes its rows' keys and values to `kept_keys_values`.
  void forward(const PassRange& pass, Keep what, bool store_keys);
  /// Recomputes, from the layer's input, the activations that `backward_layer` reads.
  void recompute(const PassRange& pass, int layer);
  /// Whether the forward pass kept all that the layer's backward pass reads.
  bool kept(int layer) const { return keep == Keep::everything || (keep == Keep::inputs && last(layer)); }
  LayerActivations& at(int layer) { return layers[keep == Keep::everything ? layer : 0]; }
  float* input(int layer) { return inputs[keep == Keep::nothing ? 0 : layer].data(); }
  int outputs(const PassRange& pass, int layer) const { return last(layer) ? pass.outputs : pass.rows; }
  ops::ChainAttention chain_attention(const PassRange& pass, int layer, int segment, int kv_head);

  // forest_head.cc
  /// Log-probs (and entropies) of the pass's targets; keeps their logits if `keep_logits`.
  void head_logprobs(const PassRange& pass, bool keep_logits);
  /// Computes d_targets of the pass and adds the head's gradient.
  void head_gradient(const PassRange& pass, float* gradients);

  // forest_backward.cc
  void backward(const PassRange& pass, float* gradients);
  void add_embedding_gradient(float* gradients);

 private:
  void prepare_forward(const PassRange& pass);
  void embed(const PassRange& pass, int first, int count);
  void project(const PassRange& pass, int layer, int first, int count, bool saving, bool store_keys);
  void attend(const PassRange& pass, int layer, bool saving);
  void transform(const PassRange& pass, int layer, int first, int count, bool saving, bool output_wanted);
  template <class Work>
  void each_tile(int rows, Work&& work_on);

  void prepare_chunk(int rows);
  void compute_logits(const PassRange& pass, int first, int offset, int count);

  struct Piece {
    int first = 0;  // row or output of the pass
    int count = 0;
  };
  template <class Begin, class Tile, class Finish>
  void over_pieces(const PassRange& pass, bool of_outputs, Begin&& begin, Tile&& tile, Finish&& finish);
  void prepare_backward(const PassRange& pass);
  void backward_layer(const PassRange& pass, int layer, float* gradients);
  void transform_backward(const PassRange& pass, int layer, PieceSpace& space, int place, int first, int count);
  void attend_backward(const PassRange& pass, int layer);
  void project_backward(const PassRange& pass, int layer, PieceSpace& space, int place, int first, int count);
  void norm_backward(const float* x, const float* weight, const float* inverse, const float* dy, float* dx, float* blocks, int place,
                     int count);
};

}  // namespace longhaul
