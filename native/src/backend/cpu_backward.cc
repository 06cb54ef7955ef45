// The backward half of CpuTraining. Within a layer, pieces go from the last to the first. While the tiles of one piece are computed, the
// weight gradients of the piece before it (in this order) are added up.
#include <algorithm>
#include <cstring>

#include "backend/cpu_training.h"

namespace longhaul {

namespace {

int blocks_of(int rows) { return (rows + norm_block_rows - 1) / norm_block_rows; }

/// Rows of one unit of work on a piece: a multiple of the blocks that the norms' gradients are summed in.
int piece_tile_rows(int rows, int threads) {
  return norm_block_rows * std::max(1, (blocks_of(rows) + 4 * threads - 1) / (4 * threads));
}

void make_room(PieceSpace& space, const Architecture& arch, const BackwardLinears& linears) {
  const size_t rows = piece_rows, width = size_t(arch.hidden_size), blocks = size_t(piece_rows / norm_block_rows);
  space.d_output.room(rows * width);
  space.d_gate_up.room(rows * 2 * size_t(arch.intermediate_size));
  space.d_adapter_down.rows(piece_rows, linears);
  space.norm_blocks.room(blocks * width);
  space.final_norm_blocks.room(blocks * width);
  space.head_norm_blocks.room(blocks * 2 * size_t(arch.head_dim));
  space.bias_blocks.room(blocks * size_t(arch.qkv_width()));
}

}  // namespace

/// For every piece, from the last to the first, calls begin(space, count) on the calling thread; then tile(space, place, first, count) for
/// each of its tiles (`place` counts from the piece's first row); then finish(space, piece) on the calling thread, which adds the piece's
/// gradients to `work_`.
template <class Begin, class Tile, class Finish>
void CpuTraining::over_pieces(const PassRange& pass, bool of_outputs, Begin&& begin, Tile&& tile, Finish&& finish) {
  const auto piece_at = [&](int index) {
    if (!of_outputs) return RowRange{index * piece_rows, std::min(piece_rows, pass.rows - index * piece_rows)};
    const int32_t* bounds = plan_.piece_outputs.data() + pass.first_piece + index;
    return RowRange{bounds[0] - pass.first_output, bounds[1] - bounds[0]};
  };
  for (int index = pass.pieces; index >= 0; --index) {
    work_.clear();
    if (index < pass.pieces && piece_at(index).count > 0) finish(pieces_[index % 2], piece_at(index));
    const RowRange piece = index > 0 ? piece_at(index - 1) : RowRange{};
    const int rows = piece_tile_rows(piece.count, device_.threads());
    const size_t tiles = size_t(piece.count + rows - 1) / rows;
    if (tiles > 0) begin(pieces_[(index - 1) % 2], piece.count);
    device_.pool().parallel_for(tiles + work_.size(), [&](size_t item) {
      if (item >= tiles) return work_.run(item - tiles, device_.op());
      const int place = int(item) * rows;
      tile(pieces_[(index - 1) % 2], place, piece.first + place, std::min(rows, piece.count - place));
    });
  }
}

/// dx += …; writes each block's sum of the norm weight's gradient to `blocks`.
void CpuTraining::norm_backward(const float* x, const float* weight, const float* inverse, const float* dy, float* dx,
                                float* blocks, int place, int count) {
  const int width = architecture().hidden_size;
  for (int i = 0; i < count; i += norm_block_rows) {
    float* block = blocks + size_t((place + i) / norm_block_rows) * width;
    std::memset(block, 0, size_t(width) * sizeof(float));
    const size_t row = size_t(i) * width;
    device_.op().rms_norm_backward(x + row, weight, inverse + i, dy + row, dx + row, block, std::min(norm_block_rows, count - i), width);
  }
}

void CpuTraining::prepare_gradient() {
  device_.pack_backward(stale_);
  stale_ = false;
}

void CpuTraining::drop_backward() {
  for (CpuBuffer<float>* buffer : {&d_hidden_, &d_hidden_all_, &d_attention_, &d_qkv_}) *buffer = {};
  d_keys_values_.clear();
}

void CpuTraining::prepare_backward(const PassRange& pass) {
  const Architecture& arch = architecture();
  const RowWidths widths(arch, nullptr);
  const int rows = plan_.most_rows();
  d_hidden_.rows(rows, widths.hidden);
  d_hidden_all_.rows(rows, widths.hidden);
  d_attention_.rows(rows, widths.query);
  d_qkv_.rows(rows, widths.qkv);
  for (PieceSpace& space : pieces_) make_room(space, arch, device_.backward_linears(0));
  if (&pass != &plan_.passes.back()) return;
  // The last pass is the first to go backward: sums over all passes start at zero.
  std::vector<std::pair<float*, size_t>> zeroed;
  if (several_passes()) {
    d_keys_values_.resize(size_t(arch.num_hidden_layers));
    for (CpuBuffer<float>& layer : d_keys_values_)
      zeroed.push_back({layer.rows(forest_->rows(), widths.keys_values), size_t(forest_->rows()) * widths.keys_values});
  }
  const size_t tokens = plan_.distinct_tokens.size();
  if (!frozen()) zeroed.push_back({d_embedding_.rows(int(tokens), widths.hidden), tokens * widths.hidden});
  device_.pool().parallel_for(zeroed.size(), [&](size_t i) { std::memset(zeroed[i].first, 0, zeroed[i].second * sizeof(float)); });
}

void CpuTraining::sum_embedding_rows(const PassRange& pass) {
  const int width = architecture().hidden_size, slice = std::max(16, width / (2 * device_.threads()) / 16 * 16);
  device_.pool().parallel_for(size_t(width + slice - 1) / slice, [&](size_t s) {
    const int column = int(s) * slice, columns = std::min(slice, width - column);
    for (int piece = pass.pieces - 1; piece >= 0; --piece)
      for (int row = piece * piece_rows; row < std::min(pass.rows, (piece + 1) * piece_rows); ++row)
        device_.op().add(d_embedding_.row(plan_.token_slots[pass.first_row + row], size_t(width)) + column,
                         d_hidden_.row(row, size_t(width)) + column, size_t(columns));
  });
}

void CpuTraining::add_embedding_gradient() {
  const size_t width = size_t(architecture().hidden_size), tokens = plan_.distinct_tokens.size();
  constexpr size_t rows = 64;
  device_.pool().parallel_for((tokens + rows - 1) / rows, [&](size_t item) {
    for (size_t i = item * rows; i < std::min(tokens, (item + 1) * rows); ++i)
      device_.op().add(gradients_ + policy_->layout().embedding.offset + size_t(plan_.distinct_tokens[i]) * width,
                       d_embedding_.data() + i * width, width);
  });
}

// On entry `d_hidden_` holds the gradient of the layer's output (in the last layer: nothing yet); on return, the gradient of the layer's
// input.
void CpuTraining::backward_layer(const PassRange& pass, int layer) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const BackwardLinears& linear = device_.backward_linears(layer);
  const size_t width = size_t(arch.hidden_size), ffn = size_t(arch.intermediate_size), ld = size_t(arch.qkv_width());

  over_pieces(
      pass, last(layer),
      [&](PieceSpace& space, int count) {
        space.gate_up.resize(linear.gate_up, count);
        space.down.resize(linear.down, count);
        space.output.resize(linear.output, count);
      },
      [&](PieceSpace& space, int place, int first, int count) { transform_backward(pass, layer, space, place, first, count); },
      [&](PieceSpace& space, RowRange piece) {
        add_gradients(work_, linear.gate_up, gradients_, space.d_gate_up.data(), 2 * ffn, space.gate_up,
                      space.d_adapter_down.gate_up.data());
        add_gradients(work_, linear.down, gradients_, space.d_output.data(), width, space.down, space.d_adapter_down.down.data());
        add_gradients(work_, linear.output, gradients_, d_hidden_.row(piece.first, width), width, space.output,
                      space.d_adapter_down.output.data());
        if (frozen()) return;
        work_.add_blocks(gradients_ + parameters.post_norm.offset, space.norm_blocks.data(), blocks_of(piece.count), int(width));
        if (last(layer))
          work_.add_blocks(gradients_ + policy_->layout().final_norm.offset, space.final_norm_blocks.data(), blocks_of(piece.count),
                          int(width));
      });

  // With adapters, only the first layer's qkv adapter is trained below this attention.
  if (layer == 0 && frozen() && !linear.qkv.trained()) return;
  attend_backward(pass, layer);
  over_pieces(
      pass, false, [&](PieceSpace& space, int count) { space.qkv.resize(linear.qkv, count); },
      [&](PieceSpace& space, int place, int first, int count) { project_backward(pass, layer, space, place, first, count); },
      [&](PieceSpace& space, RowRange piece) {
        add_gradients(work_, linear.qkv, gradients_, d_qkv_.row(piece.first, ld), ld, space.qkv, space.d_adapter_down.qkv.data());
        if (frozen()) return;
        const int blocks = blocks_of(piece.count), head_dim = arch.head_dim;
        work_.add_blocks(gradients_ + parameters.input_norm.offset, space.norm_blocks.data(), blocks, int(width));
        if (arch.has_head_norms()) {
          work_.add_blocks(gradients_ + parameters.query_norm.offset, space.head_norm_blocks.data(), blocks, head_dim);
          work_.add_blocks(gradients_ + parameters.key_norm.offset,
                          space.head_norm_blocks.row(piece_rows / norm_block_rows, size_t(head_dim)), blocks, head_dim);
        }
        if (arch.has_qkv_bias())
          work_.add_blocks(gradients_ + parameters.qkv_bias.offset, space.bias_blocks.data(), blocks, int(ld));
      });
}

/// Computes the gradient of the layer's attention from the gradient of its output (in the last layer: from the head's gradient).
void CpuTraining::transform_backward(const PassRange& pass, int layer, PieceSpace& space, int place, int first, int count) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const BackwardLinears& linear = device_.backward_linears(layer);
  LayerActivations<CpuDevice>& act = activations(layer);
  CpuScratch& tile = CpuDevice::scratch();
  const int hidden = arch.hidden_size, ffn = arch.intermediate_size;
  const size_t width = size_t(hidden), floats = size_t(count) * width, query_width = size_t(arch.query_width());
  float* d_rows = d_hidden_.row(first, width);
  const auto down = [&](CpuBuffer<float>& buffer, const BackwardLinear& of) {
    return buffer.row(first, size_t(of.adapter_width()));
  };
  float* d_normed = tile.d_normed.room(floats);

  if (last(layer)) {
    for (int i = 0; i < count; ++i) {
      const int output = pass.first_output + first + i, target = plan_.output_targets[output], targets = plan_.targets_of(output);
      const float* from = d_targets_.row(target - pass.first_target, width);
      std::memcpy(d_normed + size_t(i) * width, from, width * sizeof(float));
      for (int t = 1; t < targets; ++t) device_.op().add(d_normed + size_t(i) * width, from + size_t(t) * width, width);
    }
    std::memset(d_rows, 0, floats * sizeof(float));
    norm_backward(last_hidden_.row(first, width), device_.weights().at(policy_->layout().final_norm), final_inverse_.data() + first,
                  d_normed, d_rows, space.final_norm_blocks.data(), place, count);
  }

  std::memcpy(space.d_output.row(place, width), d_rows, floats * sizeof(float));
  float* gate_up = act.gate_up.row(first, size_t(2) * ffn);
  if (linear.down.trained()) {
    float* activated = tile.activated.room(size_t(count) * ffn);
    device_.swiglu(gate_up, activated, count);
    space.down.write(linear.down, activated, size_t(ffn), down(act.adapter_down.down, linear.down), place, count);
  }
  float* d_activated = tile.d_activated.room(size_t(count) * ffn);
  apply_backward(device_.op(), linear.down, d_rows, width, d_activated, size_t(ffn), count,
                 space.d_adapter_down.down.row(place, size_t(linear.down.adapter_width())));
  float* d_gate_up = space.d_gate_up.row(place, size_t(2) * ffn);
  device_.op().swiglu_backward(gate_up, d_activated, d_gate_up, count, ffn);

  const float* middle = act.middle.row(first, width);
  float* inverse = tile.inverse.room(size_t(count));
  float* normed = tile.normed.room(floats);
  device_.rms_norm(middle, parameters.post_norm, normed, inverse, count);
  space.gate_up.write(linear.gate_up, normed, width, down(act.adapter_down.gate_up, linear.gate_up), place, count);
  apply_backward(device_.op(), linear.gate_up, d_gate_up, size_t(2) * ffn, d_normed, width, count,
                 space.d_adapter_down.gate_up.row(place, size_t(linear.gate_up.adapter_width())));
  norm_backward(middle, device_.weights().at(parameters.post_norm), inverse, d_normed, d_rows, space.norm_blocks.data(), place, count);
  space.output.write(linear.output, act.attention.row(first, query_width), query_width,
                     down(act.adapter_down.output, linear.output), place, count);
  apply_backward(device_.op(), linear.output, d_rows, width, d_attention_.row(first, query_width), query_width, count,
                 space.d_adapter_down.output.row(place, size_t(linear.output.adapter_width())));
}

/// Gradients of queries, keys and values. The segments of a tree add to the gradients of the same keys and values. So the segments of a
/// tree run one after another, from the last to the first; KV heads and trees run independently.
void CpuTraining::attend_backward(const PassRange& pass, int layer) {
  const Architecture& arch = architecture();
  const size_t ld = size_t(arch.qkv_width()), width = size_t(arch.hidden_size);
  constexpr int tile = 192;
  device_.pool().parallel_for(size_t(pass.rows + tile - 1) / tile, [&](size_t t) {
    const int first = int(t) * tile, count = std::min(tile, pass.rows - first);
    std::memset(d_qkv_.row(first, ld), 0, size_t(count) * ld * sizeof(float));
    if (!last(layer)) return;
    std::memset(d_hidden_all_.row(first, width), 0, size_t(count) * width * sizeof(float));
    const auto begin = plan_.output_pass_rows.begin() + pass.first_output, end = begin + pass.outputs;
    for (auto output = std::lower_bound(begin, end, first); output != end && *output < first + count; ++output)
      std::memcpy(d_hidden_all_.row(*output, width), d_hidden_.row(int(output - begin), width), width * sizeof(float));
  });
  if (last(layer)) d_hidden_.swap(d_hidden_all_);

  const size_t kv_heads = size_t(arch.num_key_value_heads);
  device_.pool().parallel_for(size_t(pass.groups) * kv_heads, [&](size_t item) {
    const SegmentGroup& group = plan_.groups[size_t(pass.first_group) + item / kv_heads];
    for (int i = group.first; i < group.first + group.count; ++i) {
      const int segment = plan_.group_segments[i];
      if (last(layer) && plan_.segments[segment].outputs == 0) continue;
      ops::ChainAttentionBackward args{};
      args.forward = chain_attention(pass, layer, segment, int(item % kv_heads));
      args.d_out = d_attention_.data();
      args.d_queries = d_qkv_.data();
      args.d_keys_values = several_passes() ? d_keys_values_[size_t(layer)].data() : d_qkv_.data() + arch.query_width();
      device_.op().chain_attention_backward(args);
    }
  });
}

/// Computes the gradient of the layer's input from the gradients of queries, keys and values.
void CpuTraining::project_backward(const PassRange& pass, int layer, PieceSpace& space, int place, int first, int count) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const BackwardLinear& linear = device_.backward_linears(layer).qkv;
  LayerActivations<CpuDevice>& act = activations(layer);
  CpuScratch& tile = CpuDevice::scratch();
  const int hidden = arch.hidden_size, heads = arch.num_attention_heads, kv_heads = arch.num_key_value_heads,
            head_dim = arch.head_dim;
  const size_t width = size_t(hidden), ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width()),
               kept_width = size_t(2) * arch.key_value_width(), ld_saved = query_width + kept_width / 2,
               ld_inverse = size_t(heads) + kv_heads;
  const bool norms = arch.has_head_norms();
  float* d_rows = d_qkv_.row(first, ld);
  if (several_passes())
    for (int i = 0; i < count; ++i)
      std::memcpy(d_rows + size_t(i) * ld + query_width,
                  d_keys_values_[size_t(layer)].row(pass.first_row + first + i, kept_width), kept_width * sizeof(float));

  for (int i = 0; i < count; i += norm_block_rows) {
    const int rows = std::min(norm_block_rows, count - i), block = (place + i) / norm_block_rows;
    const int32_t* positions = forest_->positions.data() + pass.first_row + first + i;
    float* d_queries = d_rows + size_t(i) * ld;
    float *d_query_norm = nullptr, *d_key_norm = nullptr;
    const float *saved = nullptr, *inverse = nullptr;
    if (norms) {
      d_query_norm = space.head_norm_blocks.row(block, size_t(head_dim));
      d_key_norm = space.head_norm_blocks.row(piece_rows / norm_block_rows + block, size_t(head_dim));
      std::memset(d_query_norm, 0, size_t(head_dim) * sizeof(float));
      std::memset(d_key_norm, 0, size_t(head_dim) * sizeof(float));
      saved = act.heads_saved.row(first + i, ld_saved);
      inverse = act.heads_inverse.row(first + i, ld_inverse);
    }
    const auto rotate_back = [&](float* dx, const ParameterRange& norm, const float* its_saved, const float* its_inverse, float* d_norm, int of) {
      device_.op().head_norm_rope_backward(dx, ld, norms ? device_.weights().at(norm) : nullptr, positions, device_.weights().rope().cos(),
                                           device_.weights().rope().sin(), its_saved, ld_saved, its_inverse, ld_inverse, d_norm, rows, of,
                                           head_dim);
    };
    rotate_back(d_queries, parameters.query_norm, saved, inverse, d_query_norm, heads);
    rotate_back(d_queries + query_width, parameters.key_norm, norms ? saved + query_width : nullptr, norms ? inverse + heads : nullptr,
                d_key_norm, kv_heads);
    if (arch.has_qkv_bias() && !frozen()) {
      float* bias = space.bias_blocks.row(block, ld);
      std::memset(bias, 0, ld * sizeof(float));
      device_.op().column_sums(d_queries, ld, rows, int(ld), bias);
    }
  }

  const float* x = inputs_[size_t(layer)].row(first, width);
  float* inverse = tile.inverse.room(size_t(count));
  float* normed = tile.normed.room(size_t(count) * width);
  device_.rms_norm(x, parameters.input_norm, normed, inverse, count);
  space.qkv.write(linear, normed, width, act.adapter_down.qkv.row(first, size_t(linear.adapter_width())), place, count);
  float* d_down = space.d_adapter_down.qkv.row(place, size_t(linear.adapter_width()));
  if (layer == 0 && frozen()) {
    apply_backward(device_.op(), linear, d_rows, ld, nullptr, 0, count, d_down);
    return;
  }
  float* d_normed = tile.d_normed.room(size_t(count) * width);
  apply_backward(device_.op(), linear, d_rows, ld, d_normed, width, count, d_down);
  norm_backward(x, device_.weights().at(parameters.input_norm), inverse, d_normed, d_hidden_.row(first, width), space.norm_blocks.data(),
                place, count);
}

}  // namespace longhaul
