#include "cuda/host/training/gradient_check.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/device_error.h"
#include "base/float_text.h"

namespace longhaul::cuda {

namespace {

/// A long batch has millions of rows of operands: so much of them is copied for each.
constexpr int most_outputs = 48, most_inputs = 64;

bool same(float a, float b) {
  // Which bits a NaN has differs between processors.
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace

void GradientCheck::choose(const DeviceModel& model, const Oracle& oracle, std::uint64_t choice, Stream stream) {
  const std::vector<GradientMatrix> all = gradient_matrices(model);
  if (all.empty()) return;
  const auto next = [&choice](std::uint64_t count) {
    const std::uint64_t chosen = choice % count;
    choice /= count;
    return chosen;
  };
  matrix_ = all[std::size_t(next(all.size()))];
  oracle_ = &oracle;
  stream_ = stream;
  outputs_ = std::min(most_outputs, matrix_.outputs);
  inputs_ = std::min(most_inputs, matrix_.inputs);
  first_output_ = int(next(std::uint64_t(matrix_.outputs - outputs_) + 1));
  first_input_ = int(next(std::uint64_t(matrix_.inputs - inputs_) + 1));
  expected_.assign(std::size_t(outputs_) * std::size_t(inputs_), 0.0f);
}

const std::vector<float>& GradientCheck::operand(ConstRows from, int first, int count, int rows, std::vector<float>& to) {
  to.resize(std::size_t(rows) * std::size_t(count));
  float* gathered = gathered_.room(to.size());
  gather_rows({from.data + first, from.ld}, nullptr, {gathered, std::size_t(count)}, rows, count, stream_);
  device_copy(to.data(), static_cast<const float*>(gathered), to.size(), stream_);
  return to;
}

void GradientCheck::add(const GradientProduct& product, int rows) {
  if (!chosen() || product.offset != matrix_.offset) return;
  const std::vector<float>& x = operand(product.x, first_input_, inputs_, rows, x_);
  const std::vector<float>& dy = operand(product.dy, first_output_, outputs_, rows, dy_);
  oracle_->add_gradient(dy.data(), x.data(), rows, outputs_, inputs_, expected_.data());
}

void GradientCheck::finish(const float* gradients) {
  if (!chosen()) return;
  const GradientMatrix matrix = std::exchange(matrix_, {});
  const ConstRows all{gradients + matrix.offset, std::size_t(matrix.inputs)};
  operand({all.data + std::size_t(first_output_) * all.ld, all.ld}, first_input_, inputs_, outputs_, found_);
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (same(found_[i], expected_[i])) continue;
    const std::size_t row = std::size_t(first_output_) + i / std::size_t(inputs_), column = std::size_t(first_input_) + i % std::size_t(inputs_);
    throw WrongValue("element [" + std::to_string(row) + ", " + std::to_string(column) + "] of the gradient of " + matrix.name + " [" +
                     std::to_string(matrix.outputs) + ", " + std::to_string(matrix.inputs) + "] is " + text_with_bits(found_[i]) +
                     " on the device and " + text_with_bits(expected_[i]) + " on the " + oracle_->name);
  }
}

}  // namespace longhaul::cuda
