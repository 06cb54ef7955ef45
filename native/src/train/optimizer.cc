#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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

/// A block of 256 values may reach over the border of two matrices, so decay is told for every 16 values (all widths are multiples).
constexpr size_t decay_unit = 16;

/// For each 16 values of [first, last), whether they decay.
void mark_decayed(const std::vector<TrainedRange>& ranges, size_t first, size_t last, uint8_t* decayed) {
  const auto behind = [](size_t at, const TrainedRange& range) { return at < range.offset + range.size; };
  auto range = std::upper_bound(ranges.begin(), ranges.end(), first, behind);
  for (size_t at = first; at < last; at += decay_unit) {
    while (range != ranges.end() && at >= range->offset + range->size) ++range;
    *decayed++ = range != ranges.end() && range->decayed;
  }
}

void step_8bit(Policy& policy, const ops::Table& op, std::span<const float> gradients, const ops::AdamStep& adam, ThreadPool& pool) {
  const std::vector<TrainedRange> ranges = policy.trained_ranges();
  const std::span<float> values = policy.trained();
  Moments& moments = policy.moments();
  pool.parallel_for((values.size() + parameter_block - 1) / parameter_block, [&](size_t b) {
    const size_t first = b * parameter_block, last = std::min(values.size(), first + parameter_block);
    uint8_t decayed[parameter_block / decay_unit];
    mark_decayed(ranges, first, last, decayed);
    op.adamw_8bit(adam, values.data() + first, moments.first_codes.data() + first, moments.first_scales.data() + first / Moments::block,
                  moments.second_codes.data() + first, moments.second_scales.data() + first / Moments::block, gradients.data() + first,
                  last - first, decayed);
  });
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
