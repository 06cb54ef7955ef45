// The head half of ForestPass: logits of target rows only, a bounded number at once, in canonical order of targets.
#include <algorithm>
#include <cstring>

#include "train/forest/forest_pass_state.h"

namespace longhaul {

namespace {

/// Rows of one unit of work.
int head_tile_rows(int rows, int threads) {
  constexpr int kernel_rows = 12, least = 12, most = 96;
  const int share = (rows + 4 * threads - 1) / (4 * threads);
  return std::clamp((share + kernel_rows - 1) / kernel_rows * kernel_rows, least, most);
}

}  // namespace

/// Writes the logits of targets [first, first + count), in canonical order, to rows [offset, offset + count) of the chunk. If the head is
/// trained, also packs their inputs.
void ForestPass::State::compute_logits(const PassRange& pass, int first, int offset, int count) {
  const size_t width = size_t(architecture().hidden_size), vocab = size_t(architecture().vocab_size);
  float* hidden = room(tile_space().normed, size_t(count) * width);
  for (int i = 0; i < count; ++i)
    std::memcpy(hidden + size_t(i) * width,
                final_normed.data() + size_t(plan.target_outputs[first + i] - pass.first_output) * width, width * sizeof(float));
  op->matmul(hidden, width, weights().forward_panels().head, logits.data() + size_t(offset) * vocab, vocab, count, false);
  if (keep != Keep::nothing && !frozen()) head_rows.write(hidden, width, offset, count);
}

/// Makes room for the next rows of logits.
void ForestPass::State::prepare_chunk(int rows) {
  room(logits, rounded_rows(rows) * size_t(architecture().vocab_size));
  if (keep != Keep::nothing && !frozen()) head_rows.resize(rows, architecture().hidden_size);
}

void ForestPass::State::head_logprobs(const PassRange& pass, bool keep_logits) {
  const int capacity = head_capacity(architecture(), pool.threads()), vocab = architecture().vocab_size;
  const int most = keep_logits ? std::max(pass.targets, 1) : capacity;
  logits_kept = keep_logits;
  for (int begin = 0; begin < pass.targets; begin += most) {
    const int rows = std::min(most, pass.targets - begin), tile = head_tile_rows(rows, pool.threads());
    prepare_chunk(rows);
    pool.parallel_for(size_t(rows + tile - 1) / tile, [&](size_t t) {
      const int offset = int(t) * tile, count = std::min(tile, rows - offset), first = pass.first_target + begin + offset;
      compute_logits(pass, first, offset, count);
      float* row = logits.data() + size_t(offset) * vocab;
      for (int i = 0; i < count; ++i, row += vocab) {
        const int32_t target = plan.target_order[first + i];
        const ops::RowNormalizer normalizer = op->normalize_row(row, vocab, inverse_temperature);
        normalizers[first + i] = normalizer;
        logprobs[target] = ops::row_logprob(row[target_tokens[target]], normalizer, inverse_temperature);
        if (with_entropy) entropies[target] = op->row_entropy(row, vocab, normalizer, inverse_temperature);
      }
    });
    tell(advanced);
  }
}

void ForestPass::State::head_gradient(const PassRange& pass, float* gradients) {
  const int capacity = head_capacity(architecture(), pool.threads()), vocab = architecture().vocab_size;
  const size_t width = size_t(architecture().hidden_size);
  const int most = logits_kept ? std::max(pass.targets, 1) : capacity;
  const ParameterRange& head = policy->layout().head;
  room(d_targets, rounded_rows(plan.most_targets()) * width);
  for (int begin = 0; begin < pass.targets; begin += most) {
    const int rows = std::min(most, pass.targets - begin), tile = head_tile_rows(rows, pool.threads());
    prepare_chunk(rows);
    pool.parallel_for(size_t(rows + tile - 1) / tile, [&](size_t t) {
      const int offset = int(t) * tile, count = std::min(tile, rows - offset), first = pass.first_target + begin + offset;
      if (!logits_kept) compute_logits(pass, first, offset, count);
      float* d_logits = logits.data() + size_t(offset) * vocab;
      for (int i = 0; i < count; ++i) {
        const int32_t target = plan.target_order[first + i];
        float* row = d_logits + size_t(i) * vocab;
        // ∂logprob/∂z_j = (1[j = token] − p_j) / temperature; ∂entropy/∂z_j = −p_j · (log p_j + entropy) / temperature
        const float scale = float(-derivatives[target] * double(inverse_temperature));
        if (trains_entropy)
          op->softmax_entropy_gradient(row, vocab, normalizers[first + i], inverse_temperature, target_tokens[target], scale,
                                       entropies[target], float(-entropy_derivatives[target] * double(inverse_temperature)));
        else
          op->softmax_gradient(row, vocab, normalizers[first + i], inverse_temperature, target_tokens[target], scale);
      }
      op->matmul(d_logits, size_t(vocab), panels.weights.head, d_targets.data() + size_t(begin + offset) * width, width, count, false);
    });
    if (!frozen()) {
      work.clear();
      work.add({gradients + head.offset, width, logits.data(), size_t(vocab), &head_rows, vocab});
      pool.parallel_for(work.size(), [&](size_t item) { work.run(item, *op); });
    }
    tell(advanced);
  }
  logits_kept = false;
}

}  // namespace longhaul
