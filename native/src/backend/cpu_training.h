// Updates on the CPU: passes over a forest, their gradients and AdamW, on all threads of a pool.
#pragma once

#include "backend/cpu_device.h"
#include "pass/forest_pass.h"

namespace longhaul {

extern template class ForestPass<CpuDevice>;

/// Buffers from which, together with activations, the gradients of one piece are computed.
struct PieceSpace {
  CpuBuffer<float> d_output;   // [512, hidden]: gradient of the MLP's output
  CpuBuffer<float> d_gate_up;  // [512, 2 · intermediate]
  AdapterActivations<CpuDevice> d_adapter_down;
  PackedLinear qkv, output, gate_up, down;
  // Sums over blocks of 64 rows.
  CpuBuffer<float> norm_blocks, final_norm_blocks, head_norm_blocks, bias_blocks;
};

class CpuTraining final : public ForestPass<CpuDevice> {
 public:
  explicit CpuTraining(ThreadPool& pool, ForestPassSettings settings = {}) : ForestPass(CpuDevice(pool), settings), work_(pool.threads()) {}

  void prepare(const ForestPassSettings& settings, int most_rows) override;
  void check_gradient(std::uint64_t) override {}
  double gradient_norm() override;
  void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
            const OptimizerSettings& settings) override;
  void collect(Policy& next) override;
  void give_up() noexcept override {}

 private:
  void attend(const PassRange& pass, int layer, bool saving) override;
  ops::ChainAttention chain_attention(const PassRange& pass, int layer, int segment, int kv_head);
  std::span<const float> all_gradients() const { return {gradients_, policy_->trained().size()}; }

  // cpu_backward.cc
  void prepare_gradient() override;
  void prepare_backward(const PassRange& pass) override;
  void backward_layer(const PassRange& pass, int layer) override;
  void sum_embedding_rows(const PassRange& pass) override;
  void add_embedding_gradient() override;
  void drop_backward() override;
  template <class Begin, class Tile, class Finish>
  void over_pieces(const PassRange& pass, bool of_outputs, Begin&& begin, Tile&& tile, Finish&& finish);
  void transform_backward(const PassRange& pass, int layer, PieceSpace& space, int place, int first, int count);
  void attend_backward(const PassRange& pass, int layer);
  void project_backward(const PassRange& pass, int layer, PieceSpace& space, int place, int first, int count);
  void norm_backward(const float* x, const float* weight, const float* inverse, const float* dy, float* dx, float* blocks, int place,
                     int count);

  /// Whether trained values may have changed since their panels were packed.
  bool stale_ = true;
  CpuBuffer<float> d_hidden_, d_hidden_all_, d_attention_, d_qkv_;
  CpuBuffer<float> d_embedding_;                   // [distinct tokens, hidden]
  std::vector<CpuBuffer<float>> d_keys_values_;    // as keys_values_
  PieceSpace pieces_[2];
  GradientWork work_;
};

}  // namespace longhaul
