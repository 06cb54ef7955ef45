// The head half of ForestPass: logits of target rows only, a bounded number at once, in canonical order of targets.
#pragma once

#include "pass/forest_pass.h"

namespace longhaul {

template <class Device>
std::vector<PieceRange> ForestPass<Device>::target_chunks(const PassRange& pass) const {
  return plan_.target_chunks(pass, head_capacity(architecture(), device_.threads()), device_.sums_by_piece());
}

/// Makes room for the next logits and, if the head is trained, for their inputs.
template <class Device>
void ForestPass<Device>::prepare_chunk(int targets) {
  logits_.rows(targets, size_t(architecture().vocab_size));
  row_logprobs_.rows(targets, 1);
  row_entropies_.rows(targets, 1);
  if (keep_ != Keep::nothing && !frozen()) device_.resize(head_inputs_, targets, architecture().hidden_size);
}

/// Writes the logits of some targets of a chunk, which begins with the pass's target `first`; if the head is trained, also their inputs.
template <class Device>
void ForestPass<Device>::compute_logits(const PassRange& pass, int first, RowRange at) {
  const size_t width = size_t(architecture().hidden_size);
  auto* inputs = device_.scratch().head.room(size_t(at.count) * width);
  device_.gather({final_normed_.data(), width}, arrays(pass).target_outputs.data() + first + at.first, {inputs, width}, at.count, int(width));
  const size_t vocab = size_t(architecture().vocab_size);
  device_.product(device_.head(), {inputs, width}, {logits_.row(at.first, vocab), vocab}, at.count, false);
  if (keep_ != Keep::nothing && !frozen()) device_.write(head_inputs_, {inputs, width}, at);
}

template <class Device>
void ForestPass<Device>::head_logprobs(const PassRange& pass, bool keep_logits) {
  const std::vector<PieceRange> chunks = target_chunks(pass);
  logits_kept_ = keep_logits && chunks.size() == 1;
  for (const PieceRange& chunk : chunks) {
    const int first = chunk.first, targets = chunk.count;
    prepare_chunk(targets);
    device_.head_rows(targets, [&](RowRange at) {
      compute_logits(pass, first, at);
      const int target = first + at.first;
      device_.row_logprobs(logits_.row(at.first, size_t(architecture().vocab_size)), at.count, inverse_temperature_,
                           arrays(pass).target_tokens.data() + target, normalizers_.data() + pass.first_target + target,
                           row_logprobs_.data() + at.first, with_entropy_ ? row_entropies_.data() + at.first : nullptr);
    });
    const auto read = [&](const Buffer<float>& from, std::vector<float>& to) {
      const std::span<const float> values = device_.read(from, size_t(targets));
      for (int i = 0; i < targets; ++i) to[size_t(plan_.target_order[size_t(pass.first_target + first + i)])] = values[size_t(i)];
    };
    read(row_logprobs_, logprobs_);
    if (with_entropy_) read(row_entropies_, entropies_);
    tell(advanced_);
  }
}

template <class Device>
void ForestPass<Device>::head_gradient(const PassRange& pass) {
  const size_t width = size_t(architecture().hidden_size), vocab = size_t(architecture().vocab_size);
  d_targets_.rows(plan_.most_targets(), width);
  for (const PieceRange& chunk : target_chunks(pass)) {
    const int first = chunk.first, targets = chunk.count;
    prepare_chunk(targets);
    // ∂logprob/∂z_j = (1[j = token] − p_j) / temperature; ∂entropy/∂z_j = −p_j · (log p_j + entropy) / temperature
    std::vector<float> scales, entropies, entropy_scales;
    for (int i = 0; i < targets; ++i) {
      const size_t target = size_t(plan_.target_order[size_t(pass.first_target + first + i)]);
      scales.push_back(float(-derivatives_[target] * double(inverse_temperature_)));
      if (!trains_entropy_) continue;
      entropies.push_back(entropies_[target]);
      entropy_scales.push_back(float(-entropy_derivatives_[target] * double(inverse_temperature_)));
    }
    device_.put(scales, scales_);
    device_.put(entropies, row_entropies_);
    device_.put(entropy_scales, entropy_scales_);
    device_.head_rows(targets, [&](RowRange at) {
      if (!logits_kept_) compute_logits(pass, first, at);
      const int target = first + at.first;
      auto* d_logits = logits_.row(at.first, vocab);
      device_.softmax_gradient(d_logits, at.count, inverse_temperature_, arrays(pass).target_tokens.data() + target,
                               normalizers_.data() + pass.first_target + target, scales_.data() + at.first,
                               trains_entropy_ ? row_entropies_.data() + at.first : nullptr,
                               trains_entropy_ ? entropy_scales_.data() + at.first : nullptr);
      device_.product_backward(device_.backward_head(), {d_logits, vocab}, {d_targets_.row(target, width), width}, at.count, false);
    });
    if (!frozen()) device_.add_head_gradient(logits_.data(), head_inputs_, chunk, gradients_);
    tell(advanced_);
  }
  logits_kept_ = false;
}

}  // namespace longhaul
