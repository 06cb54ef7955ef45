#include "model/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/exact_math.h"

namespace longhaul {

namespace {

/// Values in one unit of work, and in one partial sum of the norm.
constexpr size_t parameter_block = 16384;

struct Stretch {
  size_t offset, size;
  bool decayed;
};

/// The trained ranges in blocks. No block spans two ranges, because weight decay applies to some ranges only.
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

/// The policies, gradients and settings that a step reads and writes.
struct Step {
  Policy& next;
  const Policy& from;
  bool reset_moments;
  const float* gradients;
  ops::AdamStep adam;
};

/// Copies [first, last) of `from` to `to`, or writes zeros; does nothing if both are the same array.
template <class T>
void take_over(T* to, const T* from, bool zero, size_t first, size_t last) {
  if (zero)
    std::memset(static_cast<void*>(to + first), 0, (last - first) * sizeof(T));
  else if (to != from)
    std::memcpy(to + first, from + first, (last - first) * sizeof(T));
}

void step_fp32(const Step& step, const ops::Table& op, ThreadPool& pool) {
  const std::vector<Stretch> blocks = blocks_of(step.from);
  Moments& moments = step.next.moments();
  const Moments& before = step.from.moments();
  float* values = step.next.trained().data();
  const float* old_values = step.from.trained().data();
  pool.parallel_for(blocks.size(), [&](size_t b) {
    const Stretch& block = blocks[b];
    const size_t first = block.offset, last = first + block.size;
    take_over(values, old_values, false, first, last);
    take_over(moments.first.data(), before.first.data(), step.reset_moments, first, last);
    take_over(moments.second.data(), before.second.data(), step.reset_moments, first, last);
    op.adamw(block.decayed ? step.adam : without_decay(step.adam), values + first, moments.first.data() + first,
             moments.second.data() + first, step.gradients + first, block.size);
  });
}

void step_8bit(const Step& step, const ops::Table& op, ThreadPool& pool) {
  const std::vector<TrainedRange> ranges = step.from.trained_ranges();
  const std::span<float> values = step.next.trained();
  const float* old_values = step.from.trained().data();
  Moments& moments = step.next.moments();
  const Moments& before = step.from.moments();
  pool.parallel_for((values.size() + parameter_block - 1) / parameter_block, [&](size_t b) {
    const size_t first = b * parameter_block, last = std::min(values.size(), first + parameter_block);
    const size_t scale = first / Moments::block, last_scale = (last + Moments::block - 1) / Moments::block;
    take_over(values.data(), old_values, false, first, last);
    take_over(moments.first_codes.data(), before.first_codes.data(), step.reset_moments, first, last);
    take_over(moments.second_codes.data(), before.second_codes.data(), step.reset_moments, first, last);
    take_over(moments.first_scales.data(), before.first_scales.data(), step.reset_moments, scale, last_scale);
    take_over(moments.second_scales.data(), before.second_scales.data(), step.reset_moments, scale, last_scale);
    uint8_t decayed[parameter_block / decay_unit];
    mark_decayed(ranges, first, last, decayed);
    op.adamw_8bit(step.adam, values.data() + first, moments.first_codes.data() + first, moments.first_scales.data() + scale,
                  moments.second_codes.data() + first, moments.second_scales.data() + scale, step.gradients + first, last - first,
                  decayed);
  });
}

}  // namespace

void mark_decayed(const std::vector<TrainedRange>& ranges, size_t first, size_t last, uint8_t* decayed) {
  const auto behind = [](size_t at, const TrainedRange& range) { return at < range.offset + range.size; };
  auto range = std::upper_bound(ranges.begin(), ranges.end(), first, behind);
  for (size_t at = first; at < last; at += decay_unit) {
    while (range != ranges.end() && at >= range->offset + range->size) ++range;
    *decayed++ = range != ranges.end() && range->decayed;
  }
}

double gradient_norm(const Policy& policy, const float* gradients, ThreadPool& pool) {
  const ops::Table& op = ops::table();
  const std::vector<Stretch> blocks = blocks_of(policy);
  std::vector<double> squares(blocks.size());
  pool.parallel_for(blocks.size(), [&](size_t b) {
    squares[b] = op.sum_of_squares(gradients + blocks[b].offset, blocks[b].size);
  });
  double total = 0;
  for (const double square : squares) total += square;
  return std::sqrt(total);
}

ops::AdamStep adam_step(int64_t t, double norm, double learning_rate, const OptimizerSettings& settings) {
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
  return adam;
}

void optimizer_step(Policy& next, const Policy& from, bool reset_moments, const float* gradients, const ops::AdamStep& adam,
                    ThreadPool& pool) {
  const Step step{next, from, reset_moments, gradients, adam};
  if (from.moments().format == MomentFormat::int8)
    step_8bit(step, ops::table(), pool);
  else
    step_fp32(step, ops::table(), pool);
  next.changed();
}

}  // namespace longhaul
