// The backward half of ForestPass. Within a layer, pieces go from the last to the first. While the tiles of one piece are computed, the
// weight gradients of the piece before it (in this order) are added up.
#include <algorithm>
#include <cstring>

#include "train/forest/forest_pass_state.h"

namespace longhaul {

namespace {

int blocks_of(int rows) { return (rows + norm_block_rows - 1) / norm_block_rows; }

/// Rows of one unit of work on a piece: a multiple of the blocks that the norms' gradients are summed in.
int piece_tile_rows(int rows, int threads) {
  return norm_block_rows * std::max(1, (blocks_of(rows) + 4 * threads - 1) / (4 * threads));
}

float* at_row(AlignedBuffer& buffer, int row, size_t width) { return buffer.data() + size_t(row) * width; }

void make_room(PieceSpace& space, const Architecture& arch, const BackwardLinears& linears) {
  const size_t rows = piece_rows, width = size_t(arch.hidden_size), blocks = size_t(piece_rows / norm_block_rows);
  room(space.d_output, rows * width);
  room(space.d_gate_up, rows * 2 * size_t(arch.intermediate_size));
  room(space.d_adapter_down.qkv, rows * size_t(linears.qkv.adapter_width()));
  room(space.d_adapter_down.output, rows * size_t(linears.output.adapter_width()));
  room(space.d_adapter_down.gate_up, rows * size_t(linears.gate_up.adapter_width()));
  room(space.d_adapter_down.down, rows * size_t(linears.down.adapter_width()));
  room(space.norm_blocks, blocks * width);
  room(space.final_norm_blocks, blocks * width);
  room(space.head_norm_blocks, blocks * 2 * size_t(arch.head_dim));
  room(space.bias_blocks, blocks * size_t(arch.qkv_width()));
}

}  // namespace

/// For every piece, from the last to the first, calls begin(space, count) on the calling thread; then tile(space, place, first, count) for
/// each of its tiles (`place` counts from the piece's first row); then finish(space, piece) on the calling thread, which adds the piece's
/// gradients to `work`.
template <class Begin, class Tile, class Finish>
void ForestPass::State::over_pieces(const PassRange& pass, bool of_outputs, Begin&& begin, Tile&& tile, Finish&& finish) {
  const auto piece_at = [&](int index) {
    if (!of_outputs) return Piece{index * piece_rows, std::min(piece_rows, pass.rows - index * piece_rows)};
    const int32_t* bounds = plan.piece_outputs.data() + pass.first_piece + index;
    return Piece{bounds[0] - pass.first_output, bounds[1] - bounds[0]};
  };
  for (int index = pass.pieces; index >= 0; --index) {
    work.clear();
    if (index < pass.pieces && piece_at(index).count > 0) finish(pieces[index % 2], piece_at(index));
    const Piece piece = index > 0 ? piece_at(index - 1) : Piece{};
    const int rows = piece_tile_rows(piece.count, pool.threads());
    const size_t tiles = size_t(piece.count + rows - 1) / rows;
    if (tiles > 0) begin(pieces[(index - 1) % 2], piece.count);
    pool.parallel_for(tiles + work.size(), [&](size_t item) {
      if (item >= tiles) return work.run(item - tiles, *op);
      const int place = int(item) * rows;
      tile(pieces[(index - 1) % 2], place, piece.first + place, std::min(rows, piece.count - place));
    });
  }
}

/// dx += …; writes each block's sum of the norm weight's gradient to `blocks`.
void ForestPass::State::norm_backward(const float* x, const float* weight, const float* inverse, const float* dy, float* dx,
                                      float* blocks, int place, int count) {
  const int width = architecture().hidden_size;
  for (int i = 0; i < count; i += norm_block_rows) {
    float* block = blocks + size_t((place + i) / norm_block_rows) * width;
    std::memset(block, 0, size_t(width) * sizeof(float));
    const size_t row = size_t(i) * width;
    op->rms_norm_backward(x + row, weight, inverse + i, dy + row, dx + row, block, std::min(norm_block_rows, count - i), width);
  }
}

void ForestPass::State::prepare_backward(const PassRange& pass) {
  const Architecture& arch = architecture();
  const RowWidths widths(arch, nullptr);
  const size_t rows = rounded_rows(plan.most_rows());
  room(d_hidden, rows * widths.hidden);
  room(d_hidden_all, rows * widths.hidden);
  room(d_attention, rows * widths.query);
  room(d_qkv, rows * widths.qkv);
  for (PieceSpace& space : pieces) make_room(space, arch, backwards[0]);
  if (&pass != &plan.passes.back()) return;
  // The last pass is the first to go backward: sums over all passes start at zero.
  std::vector<std::pair<float*, size_t>> zeroed;
  if (several_passes()) {
    d_kept_keys_values.resize(size_t(arch.num_hidden_layers), AlignedBuffer(BufferMemory::mapped));
    for (AlignedBuffer& buffer : d_kept_keys_values)
      zeroed.push_back({room(buffer, rounded_rows(forest->rows()) * widths.keys_values),
                        size_t(forest->rows()) * widths.keys_values});
  }
  if (!frozen()) {
    const size_t size = plan.distinct_tokens.size() * widths.hidden;
    zeroed.push_back({room(d_embedding, rounded_rows(int(plan.distinct_tokens.size())) * widths.hidden), size});
  }
  pool.parallel_for(zeroed.size(), [&](size_t i) { std::memset(zeroed[i].first, 0, zeroed[i].second * sizeof(float)); });
}

void ForestPass::State::backward(const PassRange& pass, float* gradients) {
  prepare_backward(pass);
  head_gradient(pass, gradients);
  for (int layer = architecture().num_hidden_layers - 1; layer >= 0; --layer) {
    if (!kept(layer)) recompute(pass, layer);
    backward_layer(pass, layer, gradients);
    tell(advanced);
  }
  if (frozen()) return;
  // Kept apart from `gradients`: with tied embeddings, the head's products of each pass would otherwise be added between these sums.
  const int width = architecture().hidden_size, slice = std::max(16, width / (2 * pool.threads()) / 16 * 16);
  pool.parallel_for(size_t(width + slice - 1) / slice, [&](size_t s) {
    const int column = int(s) * slice, columns = std::min(slice, width - column);
    for (int piece = pass.pieces - 1; piece >= 0; --piece)
      for (int row = piece * piece_rows; row < std::min(pass.rows, (piece + 1) * piece_rows); ++row)
        op->add(at_row(d_embedding, plan.token_slots[pass.first_row + row], size_t(width)) + column,
                at_row(d_hidden, row, size_t(width)) + column, size_t(columns));
  });
}

void ForestPass::State::add_embedding_gradient(float* gradients) {
  if (frozen()) return;
  const size_t width = size_t(architecture().hidden_size), tokens = plan.distinct_tokens.size();
  constexpr size_t rows = 64;
  pool.parallel_for((tokens + rows - 1) / rows, [&](size_t item) {
    for (size_t i = item * rows; i < std::min(tokens, (item + 1) * rows); ++i)
      op->add(gradients + policy->layout().embedding.offset + size_t(plan.distinct_tokens[i]) * width,
              d_embedding.data() + i * width, width);
  });
}

// On entry `d_hidden` holds the gradient of the layer's output (in the last layer: nothing yet); on return, the gradient of the layer's
// input.
void ForestPass::State::backward_layer(const PassRange& pass, int layer, float* gradients) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const BackwardLinears& linear = backwards[layer];
  const size_t width = size_t(arch.hidden_size), ffn = size_t(arch.intermediate_size), ld = size_t(arch.qkv_width());

  over_pieces(
      pass, last(layer),
      [&](PieceSpace& space, int count) {
        space.gate_up.resize(linear.gate_up, count);
        space.down.resize(linear.down, count);
        space.output.resize(linear.output, count);
      },
      [&](PieceSpace& space, int place, int first, int count) { transform_backward(pass, layer, space, place, first, count); },
      [&](PieceSpace& space, Piece piece) {
        add_gradients(work, linear.gate_up, gradients, space.d_gate_up.data(), 2 * ffn, space.gate_up,
                      space.d_adapter_down.gate_up.data());
        add_gradients(work, linear.down, gradients, space.d_output.data(), width, space.down, space.d_adapter_down.down.data());
        add_gradients(work, linear.output, gradients, at_row(d_hidden, piece.first, width), width, space.output,
                      space.d_adapter_down.output.data());
        if (frozen()) return;
        work.add_blocks(gradients + parameters.post_norm.offset, space.norm_blocks.data(), blocks_of(piece.count), int(width));
        if (last(layer))
          work.add_blocks(gradients + policy->layout().final_norm.offset, space.final_norm_blocks.data(), blocks_of(piece.count),
                          int(width));
      });

  // With adapters, only the first layer's qkv adapter is trained below this attention.
  if (layer == 0 && frozen() && !linear.qkv.trained()) return;
  attend_backward(pass, layer);
  over_pieces(
      pass, false, [&](PieceSpace& space, int count) { space.qkv.resize(linear.qkv, count); },
      [&](PieceSpace& space, int place, int first, int count) { project_backward(pass, layer, space, place, first, count); },
      [&](PieceSpace& space, Piece piece) {
        add_gradients(work, linear.qkv, gradients, at_row(d_qkv, piece.first, ld), ld, space.qkv, space.d_adapter_down.qkv.data());
        if (frozen()) return;
        const int blocks = blocks_of(piece.count), head_dim = arch.head_dim;
        work.add_blocks(gradients + parameters.input_norm.offset, space.norm_blocks.data(), blocks, int(width));
        if (arch.has_head_norms()) {
          work.add_blocks(gradients + parameters.query_norm.offset, space.head_norm_blocks.data(), blocks, head_dim);
          work.add_blocks(gradients + parameters.key_norm.offset,
                          at_row(space.head_norm_blocks, piece_rows / norm_block_rows, size_t(head_dim)), blocks, head_dim);
        }
        if (arch.has_qkv_bias())
          work.add_blocks(gradients + parameters.qkv_bias.offset, space.bias_blocks.data(), blocks, int(ld));
      });
}

/// Computes the gradient of the layer's attention from the gradient of its output (in the last layer: from the head's gradient).
void ForestPass::State::transform_backward(const PassRange& pass, int layer, PieceSpace& space, int place, int first, int count) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const BackwardLinears& linear = backwards[layer];
  LayerActivations& act = at(layer);
  TileSpace& tile = tile_space();
  const int hidden = arch.hidden_size, ffn = arch.intermediate_size;
  const size_t width = size_t(hidden), floats = size_t(count) * width, query_width = size_t(arch.query_width());
  float* d_rows = at_row(d_hidden, first, width);
  const auto down = [&](AlignedBuffer& buffer, const BackwardLinear& of) {
    return at_row(buffer, first, size_t(of.adapter_width()));
  };
  float* d_normed = room(tile.d_normed, floats);

  if (last(layer)) {
    for (int i = 0; i < count; ++i) {
      const int output = pass.first_output + first + i, target = plan.output_targets[output], targets = plan.targets_of(output);
      const float* from = at_row(d_targets, target - pass.first_target, width);
      std::memcpy(d_normed + size_t(i) * width, from, width * sizeof(float));
      for (int t = 1; t < targets; ++t) op->add(d_normed + size_t(i) * width, from + size_t(t) * width, width);
    }
    std::memset(d_rows, 0, floats * sizeof(float));
    norm_backward(at_row(last_hidden, first, width), weights().at(policy->layout().final_norm), final_inverse.data() + first,
                  d_normed, d_rows, space.final_norm_blocks.data(), place, count);
  }

  std::memcpy(at_row(space.d_output, place, width), d_rows, floats * sizeof(float));
  float* gate_up = at_row(act.gate_up, first, size_t(2) * ffn);
  if (linear.down.trained()) {
    float* activated = room(tile.activated, size_t(count) * ffn);
    op->swiglu(gate_up, activated, count, ffn);
    space.down.write(linear.down, activated, size_t(ffn), down(act.adapter_down.down, linear.down), place, count);
  }
  float* d_activated = room(tile.d_activated, size_t(count) * ffn);
  apply_backward(*op, linear.down, d_rows, width, d_activated, size_t(ffn), count,
                 at_row(space.d_adapter_down.down, place, size_t(linear.down.adapter_width())));
  float* d_gate_up = at_row(space.d_gate_up, place, size_t(2) * ffn);
  op->swiglu_backward(gate_up, d_activated, d_gate_up, count, ffn);

  const float* middle = at_row(act.middle, first, width);
  float* inverse = room(tile.inverse, size_t(count));
  float* normed = room(tile.normed, floats);
  op->rms_norm(middle, weights().at(parameters.post_norm), eps(), normed, inverse, count, hidden);
  space.gate_up.write(linear.gate_up, normed, width, down(act.adapter_down.gate_up, linear.gate_up), place, count);
  apply_backward(*op, linear.gate_up, d_gate_up, size_t(2) * ffn, d_normed, width, count,
                 at_row(space.d_adapter_down.gate_up, place, size_t(linear.gate_up.adapter_width())));
  norm_backward(middle, weights().at(parameters.post_norm), inverse, d_normed, d_rows, space.norm_blocks.data(), place, count);
  space.output.write(linear.output, at_row(act.attention, first, query_width), query_width,
                     down(act.adapter_down.output, linear.output), place, count);
  apply_backward(*op, linear.output, d_rows, width, at_row(d_attention, first, query_width), query_width, count,
                 at_row(space.d_adapter_down.output, place, size_t(linear.output.adapter_width())));
}

/// Gradients of queries, keys and values. The segments of a tree add to the gradients of the same keys and values. So the segments of a
/// tree run one after another, from the last to the first; KV heads and trees run independently.
void ForestPass::State::attend_backward(const PassRange& pass, int layer) {
  const Architecture& arch = architecture();
  const size_t ld = size_t(arch.qkv_width()), width = size_t(arch.hidden_size);
  constexpr int tile = 192;
  pool.parallel_for(size_t(pass.rows + tile - 1) / tile, [&](size_t t) {
    const int first = int(t) * tile, count = std::min(tile, pass.rows - first);
    std::memset(at_row(d_qkv, first, ld), 0, size_t(count) * ld * sizeof(float));
    if (!last(layer)) return;
    std::memset(at_row(d_hidden_all, first, width), 0, size_t(count) * width * sizeof(float));
    const auto begin = plan.output_pass_rows.begin() + pass.first_output, end = begin + pass.outputs;
    for (auto output = std::lower_bound(begin, end, first); output != end && *output < first + count; ++output)
      std::memcpy(at_row(d_hidden_all, *output, width), at_row(d_hidden, int(output - begin), width), width * sizeof(float));
  });
  if (last(layer)) d_hidden.swap(d_hidden_all);

  const size_t kv_heads = size_t(arch.num_key_value_heads);
  pool.parallel_for(size_t(pass.groups) * kv_heads, [&](size_t item) {
    const SegmentGroup& group = plan.groups[size_t(pass.first_group) + item / kv_heads];
    for (int i = group.first; i < group.first + group.count; ++i) {
      const int segment = plan.group_segments[i];
      if (last(layer) && plan.segments[segment].outputs == 0) continue;
      ops::ChainAttentionBackward args{};
      args.forward = chain_attention(pass, layer, segment, int(item % kv_heads));
      args.d_out = d_attention.data();
      args.d_queries = d_qkv.data();
      args.d_keys_values = several_passes() ? d_kept_keys_values[layer].data() : d_qkv.data() + arch.query_width();
      op->chain_attention_backward(args);
    }
  });
}

/// Computes the gradient of the layer's input from the gradients of queries, keys and values.
void ForestPass::State::project_backward(const PassRange& pass, int layer, PieceSpace& space, int place, int first, int count) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const BackwardLinear& linear = backwards[layer].qkv;
  LayerActivations& act = at(layer);
  TileSpace& tile = tile_space();
  const int hidden = arch.hidden_size, heads = arch.num_attention_heads, kv_heads = arch.num_key_value_heads,
            head_dim = arch.head_dim;
  const size_t width = size_t(hidden), ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width()),
               kept_width = size_t(2) * arch.key_value_width(), ld_saved = query_width + kept_width / 2,
               ld_inverse = size_t(heads) + kv_heads;
  const bool norms = arch.has_head_norms();
  float* d_rows = at_row(d_qkv, first, ld);
  if (several_passes())
    for (int i = 0; i < count; ++i)
      std::memcpy(d_rows + size_t(i) * ld + query_width,
                  at_row(d_kept_keys_values[layer], pass.first_row + first + i, kept_width), kept_width * sizeof(float));

  for (int i = 0; i < count; i += norm_block_rows) {
    const int rows = std::min(norm_block_rows, count - i), block = (place + i) / norm_block_rows;
    const int32_t* positions = forest->positions.data() + pass.first_row + first + i;
    float* d_queries = d_rows + size_t(i) * ld;
    float *d_query_norm = nullptr, *d_key_norm = nullptr;
    const float *saved = nullptr, *inverse = nullptr;
    if (norms) {
      d_query_norm = at_row(space.head_norm_blocks, block, size_t(head_dim));
      d_key_norm = at_row(space.head_norm_blocks, piece_rows / norm_block_rows + block, size_t(head_dim));
      std::memset(d_query_norm, 0, size_t(head_dim) * sizeof(float));
      std::memset(d_key_norm, 0, size_t(head_dim) * sizeof(float));
      saved = at_row(act.heads_saved, first + i, ld_saved);
      inverse = at_row(act.heads_inverse, first + i, ld_inverse);
    }
    op->head_norm_rope_backward(d_queries, ld, norms ? weights().at(parameters.query_norm) : nullptr, positions,
                                weights().rope().cos(), weights().rope().sin(), saved, ld_saved, inverse, ld_inverse, d_query_norm,
                                rows, heads, head_dim);
    op->head_norm_rope_backward(d_queries + query_width, ld, norms ? weights().at(parameters.key_norm) : nullptr, positions,
                                weights().rope().cos(), weights().rope().sin(), norms ? saved + query_width : nullptr, ld_saved,
                                norms ? inverse + heads : nullptr, ld_inverse, d_key_norm, rows, kv_heads, head_dim);
    if (arch.has_qkv_bias() && !frozen()) {
      float* bias = at_row(space.bias_blocks, block, ld);
      std::memset(bias, 0, ld * sizeof(float));
      op->column_sums(d_queries, ld, rows, int(ld), bias);
    }
  }

  const float* x = at_row(inputs[layer], first, width);
  float* inverse = room(tile.inverse, size_t(count));
  float* normed = room(tile.normed, size_t(count) * width);
  op->rms_norm(x, weights().at(parameters.input_norm), eps(), normed, inverse, count, hidden);
  space.qkv.write(linear, normed, width, at_row(act.adapter_down.qkv, first, size_t(linear.adapter_width())), place, count);
  float* d_down = at_row(space.d_adapter_down.qkv, place, size_t(linear.adapter_width()));
  if (layer == 0 && frozen()) {
    apply_backward(*op, linear, d_rows, ld, nullptr, 0, count, d_down);
    return;
  }
  float* d_normed = room(tile.d_normed, size_t(count) * width);
  apply_backward(*op, linear, d_rows, ld, d_normed, width, count, d_down);
  norm_backward(x, weights().at(parameters.input_norm), inverse, d_normed, at_row(d_hidden, first, width), space.norm_blocks.data(),
                place, count);
}

}  // namespace longhaul
