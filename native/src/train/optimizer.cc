#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/exact_math.h"

namespace longhaul {

namespace {

/// Unit of work, and of the norm's summation.
constexpr size_t parameter_block = 16384;

struct Stretch {
  size_t offset, size;
  bool decayed;
};

/// The trained ranges in blocks: moments and weights step range by range, because only matrices decay.
std::vector<Stretch> blocks_of(const Policy& policy) {
  std::vector<Stretch> blocks;
  for (const TrainedRange& range : policy.trained_ranges())
    for (size_t offset = 0; offset < range.size; offset += parameter_block)
      blocks.push_back({range.offset + offset, std::min(parameter_block, range.size - offset), range.decayed});
  return blocks;
}

ops::AdamStep without_decay(ops::AdamStep step) {
  step.weight_decay = 0;
  return step;
}

void step_fp32(Policy& policy, const ops::Table& op, std::span<const float> gradients, const ops::AdamStep& adam, ThreadPool& pool) {
  const std::vector<Stretch> blocks = blocks_of(policy);
  Moments& moments = policy.moments();
  float* values = policy.trained().data();
  pool.parallel_for(blocks.size(), [&](size_t b) {
    const Stretch& block = blocks[b];
    op.adamw(block.decayed ? adam : without_decay(adam), values + block.offset, moments.first.data() + block.offset,
             moments.second.data() + block.offset, gradients.data() + block.offset, block.size);
  });
}

/// The values of 8-bit blocks [first, last) of the flat array.
class EightBitStep {
 public:
  EightBitStep(Policy& policy, const ops::Table& op, std::span<const float> gradients, const ops::AdamStep& adam)
      : moments_(policy.moments()), values_(policy.trained()), gradients_(gradients), op_(op), adam_(adam),
        ranges_(policy.trained_ranges()) {}

  void run(size_t first, size_t last) {
    for (size_t block = first; block < last;) {
      bool decayed = false;
      if (!uniform(block, decayed)) {
        step_mixed(block++);
        continue;
      }
      size_t end = block + 1;
      for (bool same = decayed; end < last && uniform(end, same) && same == decayed;) ++end;
      step(decayed ? adam_ : without_decay(adam_), values_.data() + block * Moments::block, block, end);
      block = end;
    }
  }

 private:
  size_t end_of(size_t block) const { return std::min(block * Moments::block, values_.size()); }

  void step(const ops::AdamStep& adam, float* values, size_t first, size_t last) {
    op_.adamw_8bit(adam, values, moments_.first_codes.data() + first * Moments::block, moments_.first_scales.data() + first,
                   moments_.second_codes.data() + first * Moments::block, moments_.second_scales.data() + first,
                   gradients_.data() + first * Moments::block, end_of(last) - first * Moments::block);
  }

  /// The first range that ends behind `offset`.
  auto range_at(size_t offset) const {
    return std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                            [](size_t at, const TrainedRange& range) { return at < range.offset + range.size; });
  }

  /// Whether all values of a block decay, or none.
  bool uniform(size_t block, bool& decayed) const {
    auto range = range_at(block * Moments::block);
    decayed = range->decayed;
    for (; range != ranges_.end() && range->offset < end_of(block + 1); ++range)
      if (range->decayed != decayed) return false;
    return true;
  }

  /// A block in which some values decay: what AdamW does to the moments does not depend on decay, so it steps twice from the same
  /// state, and each value is taken from the step that is its own.
  void step_mixed(size_t block) {
    const size_t first = block * Moments::block, count = end_of(block + 1) - first;
    float decayed[Moments::block];
    int8_t first_codes[Moments::block];
    uint8_t second_codes[Moments::block];
    float first_scale = moments_.first_scales.data()[block], second_scale = moments_.second_scales.data()[block];
    std::memcpy(decayed, values_.data() + first, count * sizeof(float));
    std::memcpy(first_codes, moments_.first_codes.data() + first, count);
    std::memcpy(second_codes, moments_.second_codes.data() + first, count);
    op_.adamw_8bit(adam_, decayed, first_codes, &first_scale, second_codes, &second_scale, gradients_.data() + first, count);
    step(without_decay(adam_), values_.data() + first, block, block + 1);
    for (auto range = range_at(first); range != ranges_.end() && range->offset < first + count; ++range) {
      if (!range->decayed) continue;
      const size_t begin = std::max(range->offset, first), end = std::min(range->offset + range->size, first + count);
      std::memcpy(values_.data() + begin, decayed + (begin - first), (end - begin) * sizeof(float));
    }
  }

  Moments& moments_;
  std::span<float> values_;
  std::span<const float> gradients_;
  const ops::Table& op_;
  const ops::AdamStep& adam_;
  std::vector<TrainedRange> ranges_;
};

void step_8bit(Policy& policy, const ops::Table& op, std::span<const float> gradients, const ops::AdamStep& adam, ThreadPool& pool) {
  EightBitStep step(policy, op, gradients, adam);
  constexpr size_t share = parameter_block / Moments::block;
  const size_t blocks = policy.moments().blocks();
  pool.parallel_for((blocks + share - 1) / share, [&](size_t s) { step.run(s * share, std::min(blocks, (s + 1) * share)); });
}

}  // namespace

double gradient_norm(const Policy& policy, std::span<const float> gradients, ThreadPool& pool) {
  const ops::Table& op = ops::table();
  const std::vector<Stretch> blocks = blocks_of(policy);
  std::vector<double> squares(blocks.size());
  pool.parallel_for(blocks.size(), [&](size_t b) {
    squares[b] = op.sum_of_squares(gradients.data() + blocks[b].offset, blocks[b].size);
  });
  double total = 0;
  for (const double square : squares) total += square;
  return std::sqrt(total);
}

void optimizer_step(Policy& policy, std::span<const float> gradients, double norm, double learning_rate,
                    const OptimizerSettings& settings, ThreadPool& pool) {
  const int64_t t = ++policy.optimizer_steps;
  ops::AdamStep adam{};
  adam.learning_rate = float(learning_rate);
  adam.eps = float(settings.adam_eps);
  adam.weight_decay = float(settings.weight_decay);
  adam.beta1 = float(settings.beta1);
  adam.one_minus_beta1 = float(1 - settings.beta1);
  adam.beta2 = float(settings.beta2);
  adam.one_minus_beta2 = float(1 - settings.beta2);
  adam.correction1 = float(1 - exact::integer_power(settings.beta1, t));
  adam.correction2 = float(1 - exact::integer_power(settings.beta2, t));
  adam.gradient_scale = norm > settings.max_grad_norm ? float(settings.max_grad_norm / norm) : 1.0f;
  const ops::Table& op = ops::table();
  if (policy.moments().format == MomentFormat::int8)
    step_8bit(policy, op, gradients, adam, pool);
  else
    step_fp32(policy, op, gradients, adam, pool);
  policy.changed(&pool);
}

}  // namespace longhaul
