// The head half of DeviceTraining: logits of target rows only, a bounded number at once, in canonical order of targets.
#include "cuda/host/training/device_training.h"
#include "cuda/kernels/products.h"
#include "train/forest/forest_activations.h"

namespace longhaul::cuda {

int DeviceTraining::head_rows() const { return head_capacity(architecture(), 1); }

/// Writes the inputs and the logits of targets [first, first + count) of the pass, in canonical order.
void DeviceTraining::compute_logits(const PassRange& pass, int first, int count) {
  const Architecture& arch = architecture();
  const size_t width = size_t(arch.hidden_size), vocab = size_t(arch.vocab_size);
  float *rows = head_rows_.room(size_t(count) * width), *logits = logits_.room(size_t(count) * vocab);
  gather_rows({final_normed_.data(), width}, arrays(pass).target_outputs.data() + first, {rows, width}, count, arch.hidden_size, stream_);
  product({ProductLayout::forward, rows, width, model_->at(model_->layout().head), width, logits, vocab, count, arch.vocab_size,
           arch.hidden_size, false},
          stream_);
}

void DeviceTraining::head_logprobs(const PassRange& pass, bool keep_logits) {
  const int most = keep_logits ? std::max(pass.targets, 1) : head_rows();
  logits_kept_ = keep_logits;
  for (int first = 0; first < pass.targets; first += most) {
    const int count = std::min(most, pass.targets - first);
    compute_logits(pass, first, count);
    ops::RowNormalizer* normalizers = normalizers_.data() + pass.first_target + first;
    normalize_rows({logits_.data(), count, architecture().vocab_size, inverse_temperature_, normalizers,
                    arrays(pass).target_tokens.data() + first, row_logprobs_.room(size_t(count))},
                   stream_);
    std::vector<float> values(static_cast<size_t>(count));
    const auto read = [&](const DeviceRoom<float>& from, std::vector<float>& to) {
      device_copy(values.data(), from.data(), values.size(), stream_);
      for (int i = 0; i < count; ++i) to[size_t(plan_.target_order[size_t(pass.first_target + first + i)])] = values[size_t(i)];
    };
    read(row_logprobs_, logprobs_);
    if (with_entropy_) {
      longhaul::cuda::row_entropies({logits_.data(), count, architecture().vocab_size, inverse_temperature_, normalizers,
                                     row_entropies_.room(size_t(count))},
                                    stream_);
      read(row_entropies_, entropies_);
    }
    tell(advanced_);
  }
}

/// Computes d_targets of the pass and adds the head's gradient.
void DeviceTraining::head_gradient(const PassRange& pass) {
  const Architecture& arch = architecture();
  const size_t width = size_t(arch.hidden_size), vocab = size_t(arch.vocab_size);
  const ParameterRange& head = model_->layout().head;
  const int most = logits_kept_ ? std::max(pass.targets, 1) : head_rows();
  float* d_targets = d_targets_.room(size_t(pass.targets) * width);
  for (int first = 0; first < pass.targets; first += most) {
    const int count = std::min(most, pass.targets - first);
    if (!logits_kept_) compute_logits(pass, first, count);
    std::vector<float> scales, entropies, entropy_scales;
    for (int i = 0; i < count; ++i) {
      const size_t target = size_t(plan_.target_order[size_t(pass.first_target + first + i)]);
      // ∂logprob/∂z_j = (1[j = token] − p_j) / temperature; ∂entropy/∂z_j = −p_j · (log p_j + entropy) / temperature
      scales.push_back(float(-derivatives_[target] * double(inverse_temperature_)));
      if (!trains_entropy_) continue;
      entropies.push_back(entropies_[target]);
      entropy_scales.push_back(float(-entropy_derivatives_[target] * double(inverse_temperature_)));
    }
    softmax_gradient({logits_.data(), count, arch.vocab_size, inverse_temperature_, normalizers_.data() + pass.first_target + first,
                      arrays(pass).target_tokens.data() + first, scales_.put(scales, stream_),
                      trains_entropy_ ? row_entropies_.put(entropies, stream_) : nullptr,
                      trains_entropy_ ? entropy_scales_.put(entropy_scales, stream_) : nullptr},
                     stream_);
    product({ProductLayout::backward, logits_.data(), vocab, model_->at(head), width, d_targets + size_t(first) * width, width, count,
             arch.hidden_size, arch.vocab_size, false},
            stream_);
    if (!model_->frozen())
      product({ProductLayout::gradient, logits_.data(), vocab, head_rows_.data(), width, gradients_.data() + head.offset, width, arch.vocab_size,
               arch.hidden_size, count, true},
              stream_);
    tell(advanced_);
  }
  logits_kept_ = false;
}

}  // namespace longhaul::cuda
