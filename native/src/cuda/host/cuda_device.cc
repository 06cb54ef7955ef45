#include "cuda/host/cuda_device.h"

#include <numeric>

#include "cuda/kernels/head.h"
#include "cuda/kernels/products.h"

namespace longhaul::cuda {

std::span<const float> CudaDevice::read(const Buffer<float>& from, size_t n) {
  read_.resize(n);
  device_copy(read_.data(), from.data(), n, stream_);
  return read_;
}

void CudaDevice::product(const DeviceMatrix& w, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate) const {
  cuda::product({ProductLayout::forward, x.data, x.ld, w.data, size_t(w.inputs), y.data, y.ld, rows, w.outputs, w.inputs, accumulate}, stream_);
}

void CudaDevice::product_backward(const DeviceMatrix& w, Matrix<const float> dy, Matrix<float> dx, int rows, bool accumulate) const {
  cuda::product({ProductLayout::backward, dy.data, dy.ld, w.data, size_t(w.inputs), dx.data, dx.ld, rows, w.inputs, w.outputs, accumulate},
                stream_);
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

void CudaDevice::add_head_gradient(const float* d_logits, ConstRows x, int rows, float* gradients) const {
  const ParameterRange& head = layout().head;
  add_gradient({head.offset, head.rows, head.columns, {d_logits, size_t(head.rows)}, x}, gradients, rows, stream_);
}

void CudaDevice::sum_targets(const DeviceForestPass& arrays, RowRange outputs, const float* d_targets, float* d_outputs) const {
  const int hidden = architecture().hidden_size;
  sum_rows({d_targets, size_t(hidden)}, {arrays.output_starts.data() + outputs.first, arrays.output_targets.data(), outputs.count},
           {d_outputs, size_t(hidden)}, hidden, stream_);
}

Attention CudaDevice::launched(DeviceForestPass& arrays, const ForestAttention<float>& attention) const {
  const Architecture& arch = architecture();
  ForestQueries& queries = attention.of_outputs ? arrays.outputs : arrays.all;
  Attention args{};
  args.qkv = attention.qkv;
  args.ld_qkv = size_t(arch.qkv_width());
  args.query_rows = queries.rows.data();
  args.query_places = queries.places.data();
  args.past = chain_past(attention.keys_values.data, attention.keys_values.ld, arch.num_key_value_heads, arch.head_dim,
                         arrays.chains.data());
  args.tiles = queries.tile_room.data();
  args.tile_count = queries.tiles;
  args.tile_rows = many_tile_rows;
  args.heads = arch.num_attention_heads;
  args.kv_heads = arch.num_key_value_heads;
  args.head_dim = arch.head_dim;
  args.out = attention.out;
  args.log_sums = attention.log_sums;
  return args;
}

void CudaDevice::attention(DeviceForestPass& arrays, const ForestAttention<float>& attention) const {
  cuda::attention(launched(arrays, attention), stream_);
}

void CudaDevice::attention_backward(DeviceForestPass& arrays, const ForestAttention<float>& forward,
                                    const ForestAttentionGradients<float>& to) {
  ForestQueries& queries = forward.of_outputs ? arrays.outputs : arrays.all;
  AttentionBackward args{};
  args.forward = launched(arrays, forward);
  args.d_out = to.d_out;
  args.pulls = scratch_.pulls.room(size_t(queries.count) * size_t(architecture().num_attention_heads));
  args.d_queries = to.d_qkv;
  args.d_keys_values = to.d_keys_values;
  args.key_tiles = queries.key_tile_room.data();
  args.key_tile_count = queries.key_tiles;
  args.readers = queries.readers.data();
  cuda::attention_backward(args, stream_);
}

void CudaDevice::sum_token_rows(const DeviceForestPass& arrays, const float* rows, float* sums) const {
  const int hidden = architecture().hidden_size;
  add_rows({rows, size_t(hidden)}, {arrays.token_starts.data(), arrays.token_rows.data(), arrays.tokens_here}, arrays.token_slots.data(),
           {sums, size_t(hidden)}, hidden, stream_);
}

void CudaDevice::add_embedding_rows(const std::vector<int32_t>& tokens, const float* sums, float* gradient) const {
  const int hidden = architecture().hidden_size;
  std::vector<int32_t> starts(tokens.size() + 1);
  std::iota(starts.begin(), starts.end(), 0);
  Buffer<int32_t> rows, targets;
  add_rows({sums, size_t(hidden)}, {rows.put(starts, stream_), nullptr, int(tokens.size())}, targets.put(tokens, stream_),
           {gradient, size_t(hidden)}, hidden, stream_);
}

}  // namespace longhaul::cuda
