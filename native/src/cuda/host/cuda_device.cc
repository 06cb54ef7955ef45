#include "cuda/host/cuda_device.h"

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

void CudaDevice::add_head_gradient(const float* d_logits, ConstRows x, const PieceRange& chunk, float* gradients) const {
  const ParameterRange& head = layout().head;
  add_gradient({head.offset, head.rows, head.columns, {d_logits, size_t(head.rows)}, x}, gradients, chunk.count, stream_);
}

Attention CudaDevice::launched(DeviceQueries& queries, const Past& past, const float* qkv, float* out, float* log_sums) const {
  const Architecture& arch = architecture();
  return {.qkv = qkv,
          .ld_qkv = size_t(arch.qkv_width()),
          .query_rows = queries.rows.data(),
          .query_places = queries.places.data(),
          .past = past,
          .tiles = queries.tile_room.data(),
          .tile_count = queries.tiles,
          .tile_rows = queries.tile_rows,
          .heads = arch.num_attention_heads,
          .kv_heads = arch.num_key_value_heads,
          .head_dim = arch.head_dim,
          .out = out,
          .log_sums = log_sums};
}

Attention CudaDevice::launched(DeviceForestPass& arrays, const ForestAttention<float>& attention) const {
  const Past past = chain_past(attention.keys_values.data, attention.keys_values.ld, architecture().num_key_value_heads,
                               architecture().head_dim, arrays.chains.data());
  return launched(attention.of_outputs ? arrays.outputs : arrays.all, past, attention.qkv, attention.out, attention.log_sums);
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

void CudaDevice::store(DeviceCache& cache, int layer, DeviceFeedArrays& arrays, RowRange at, const float* qkv) const {
  const Architecture& arch = architecture();
  store_keys_values({cache.blocks(), layer, qkv, size_t(arch.qkv_width()), at.count, arrays.stores.data(), arch.num_attention_heads}, stream_);
}

void CudaDevice::attend(DeviceCache& cache, int layer, DeviceFeedArrays& arrays, RowRange, const float* qkv, float* out) const {
  cuda::attention(launched(arrays.queries, cached_past(cache.blocks(), layer, arrays.entries.data()), qkv, out, nullptr), stream_);
}

void CudaDevice::draw(const float* logits, int rows, std::span<const DrawRequest> draws, std::span<Drawn> drawn) {
  const int vocab = architecture().vocab_size;
  std::vector<RowDraw> row_draws;
  for (const DrawRequest& request : draws) row_draws.push_back({1.0f / request.temperature, request.uniform});
  draw_rows({logits, rows, vocab, scratch_.draws.put(row_draws, stream_), scratch_.drawn.room(size_t(rows))}, stream_);
  std::vector<DrawnToken> tokens(static_cast<size_t>(rows));
  device_copy(tokens.data(), scratch_.drawn.data(), tokens.size(), stream_);
  std::vector<float> row;
  for (size_t i = 0; i < tokens.size(); ++i) {
    drawn[i] = {tokens[i].token, tokens[i].logprob};
    if (draws[i].top_p >= 1 && draws[i].top_k <= 0) continue;
    // A truncated draw sorts a part of the row, which is the host's work.
    row.resize(size_t(vocab));
    device_copy(row.data(), logits + i * size_t(vocab), size_t(vocab), stream_);
    drawn[i] = longhaul::draw(row.data(), vocab, draws[i]);
  }
}

void CudaDevice::step(Policy& next, const Policy& from, bool reset_moments, const float* gradients, const ops::AdamStep& step) {
  DeviceModel& model = policies_.model_of(from);
  // From here on the arrays are no longer those of `from`, even if the step fails half-way.
  policies_.stepped_to(next);
  if (reset_moments) policies_.moments().zero(stream_);
  optimizer_.step(from, model.trained().data(), policies_.moments(), gradients, step, stream_);
}

void CudaDevice::collect(Policy& next) {
  DeviceModel& model = policies_.model_of(next);
  const std::span<float> values = next.trained();
  device_copy(values.data(), model.trained().data(), values.size(), stream_);
  policies_.moments().copy_to(next.moments(), stream_);
  next.changed();
}

}  // namespace longhaul::cuda
