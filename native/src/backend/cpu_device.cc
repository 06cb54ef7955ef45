#include "backend/cpu_device.h"

#include <algorithm>
#include <cstring>

namespace longhaul {

void CpuDevice::lay_out(CpuArrays& arrays, const Forest& forest, const PassPlan& plan, const PassRange& pass,
                        std::span<const int32_t> tokens_of_targets) {
  arrays.tokens = std::span(forest.tokens).subspan(size_t(pass.first_row), size_t(pass.rows));
  arrays.positions = std::span(forest.positions).subspan(size_t(pass.first_row), size_t(pass.rows));
  arrays.output_rows = std::span(plan.output_pass_rows).subspan(size_t(pass.first_output), size_t(pass.outputs));
  arrays.target_outputs.clear();
  arrays.target_tokens.clear();
  for (int t = pass.first_target; t < pass.first_target + pass.targets; ++t) {
    arrays.target_outputs.push_back(plan.target_outputs[size_t(t)] - pass.first_output);
    arrays.target_tokens.push_back(tokens_of_targets[size_t(plan.target_order[size_t(t)])]);
  }
}

void CpuDevice::start() {
  op_ = &ops::table();
  policy_->pack_forward(&pool_);
  linears_.clear();
  for (int layer = 0; layer < architecture().num_hidden_layers; ++layer) linears_.push_back(longhaul::linears(*policy_, layer));
}

void CpuDevice::pack_backward(bool changed) {
  const bool other = changed || packed_policy_ != policy_;
  if (policy_->adapters()) {
    if (packed_base_.lock() != policy_->shared_weights()) {
      weights().pack_backward(panels_.weights, &pool_);
      packed_base_ = policy_->shared_weights();
    }
    if (other) policy_->adapters()->pack_backward(panels_.adapters, &pool_);
  } else if (other) {
    packed_base_.reset();
    weights().pack_backward(panels_.weights, &pool_);
  }
  packed_policy_ = policy_;
  backwards_.clear();
  for (int layer = 0; layer < architecture().num_hidden_layers; ++layer)
    backwards_.push_back(longhaul::backward_linears(*policy_, panels_, layer));
}

float* CpuDevice::zeros(CpuBuffer<float>& buffer, size_t n) {
  float* all = buffer.room(n);
  constexpr size_t block = size_t{1} << 18;
  pool_.parallel_for((n + block - 1) / block, [&](size_t b) { std::memset(all + b * block, 0, std::min(block, n - b * block) * sizeof(float)); });
  return all;
}

void CpuDevice::gather(Matrix<const float> from, const int32_t* indices, Matrix<float> to, int rows, int width) const {
  const size_t floats = size_t(width);
  if (!indices && from.ld == floats && to.ld == floats) {
    std::memcpy(to.data, from.data, size_t(rows) * floats * sizeof(float));
    return;
  }
  for (int i = 0; i < rows; ++i)
    std::memcpy(to.data + size_t(i) * to.ld, from.data + size_t(indices ? indices[i] : i) * from.ld, floats * sizeof(float));
}

void CpuDevice::row_logprobs(const float* logits, int rows, float inverse_temperature, const int32_t* tokens, ops::RowNormalizer* normalizers,
                             float* logprobs, float* entropies) const {
  const int vocab = architecture().vocab_size;
  for (int i = 0; i < rows; ++i) {
    const float* row = logits + size_t(i) * vocabulary();
    normalizers[i] = op_->normalize_row(row, vocab, inverse_temperature);
    logprobs[i] = ops::row_logprob(row[tokens[i]], normalizers[i], inverse_temperature);
    if (entropies) entropies[i] = op_->row_entropy(row, vocab, normalizers[i], inverse_temperature);
  }
}

void CpuDevice::softmax_gradient(float* logits, int rows, float inverse_temperature, const int32_t* tokens,
                                 const ops::RowNormalizer* normalizers, const float* scales, const float* entropies,
                                 const float* entropy_scales) const {
  const int vocab = architecture().vocab_size;
  for (int i = 0; i < rows; ++i) {
    float* row = logits + size_t(i) * vocabulary();
    if (entropies)
      op_->softmax_entropy_gradient(row, vocab, normalizers[i], inverse_temperature, tokens[i], scales[i], entropies[i], entropy_scales[i]);
    else
      op_->softmax_gradient(row, vocab, normalizers[i], inverse_temperature, tokens[i], scales[i]);
  }
}

void CpuDevice::add_head_gradient(const float* d_logits, const PackedRows& x, int, float* gradients) {
  GradientWork work(threads());
  const ParameterRange& head = layout().head;
  work.add({gradients + head.offset, hidden(), d_logits, vocabulary(), &x, head.rows});
  pool_.parallel_for(work.size(), [&](size_t item) { work.run(item, *op_); });
}

}  // namespace longhaul
