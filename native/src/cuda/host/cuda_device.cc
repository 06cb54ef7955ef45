#include "cuda/host/cuda_device.h"

#include "cuda/kernels/head.h"
#include "cuda/kernels/products.h"

namespace longhaul::cuda {

std::span<const float> CudaDevice::read(const Buffer<float>& from, size_t n) {
  read_.resize(n);
  device_copy(read_.data(), from.data(), n, stream_);
  return read_;
}

void CudaDevice::logits(const float* x, float* y, int rows) const {
  const ParameterRange& head = layout().head;
  const size_t width = size_t(head.columns);
  product({ProductLayout::forward, x, width, model_->at(head), width, y, size_t(head.rows), rows, head.rows, head.columns, false}, stream_);
}

void CudaDevice::row_logprobs(const float* logits, int rows, float inverse_temperature, const int32_t* tokens,
                              ops::RowNormalizer* normalizers, float* logprobs, float* entropies) const {
  const int vocab = architecture().vocab_size;
  normalize_rows({logits, rows, vocab, inverse_temperature, normalizers, tokens, logprobs}, stream_);
  if (entropies) row_entropies({logits, rows, vocab, inverse_temperature, normalizers, entropies}, stream_);
}

void CudaDevice::softmax_gradient(float* logits, int rows, float inverse_temperature, const int32_t* tokens,
                                  const ops::RowNormalizer* normalizers, const float* scales, const float* entropies,
                                  const float* entropy_scales) const {
  cuda::softmax_gradient(
      {logits, rows, architecture().vocab_size, inverse_temperature, normalizers, tokens, scales, entropies, entropy_scales}, stream_);
}

void CudaDevice::logits_backward(const float* d_logits, float* dx, int rows) const {
  const ParameterRange& head = layout().head;
  const size_t width = size_t(head.columns);
  product({ProductLayout::backward, d_logits, size_t(head.rows), model_->at(head), width, dx, width, rows, head.columns, head.rows, false},
          stream_);
}

void CudaDevice::add_head_gradient(const float* d_logits, ConstRows x, int rows, float* gradients) const {
  const ParameterRange& head = layout().head;
  product({ProductLayout::gradient, d_logits, size_t(head.rows), x.data, x.ld, gradients + head.offset, x.ld, head.rows, head.columns, rows, true},
          stream_);
}

}  // namespace longhaul::cuda
