// The check of a device while it trains: the oracle computes a part of one matrix's gradient too, from the same operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/numerics.h"
#include "cuda/host/device_model.h"
#include "cuda/host/buffer.h"

namespace longhaul::cuda {

class GradientCheck {
 public:
  /// Chooses a matrix that `model` trains, and at most 48 x 64 of its elements.
  void choose(const DeviceModel& model, const Oracle& oracle, std::uint64_t choice, Stream stream);

  /// Tells of a product that the device adds to a gradient; the oracle adds those of the chosen matrix.
  void add(const GradientProduct& product, int rows);

  /// Forgets the choice. Throws WrongValue at the first element of `gradients` [all that is trained] whose bits are not the oracle's.
  void finish(const float* gradients);

  bool chosen() const { return !matrix_.name.empty(); }
  void forget() { matrix_ = {}; }

 private:
  /// A part of a product's operand, on the host.
  const std::vector<float>& operand(ConstRows from, int first, int count, int rows, std::vector<float>& to);

  GradientMatrix matrix_;
  const Oracle* oracle_ = nullptr;
  Stream stream_ = nullptr;
  int first_output_ = 0, outputs_ = 0, first_input_ = 0, inputs_ = 0;
  Buffer<float> gathered_;
  std::vector<float> dy_, x_, found_;
  std::vector<float> expected_;  // [outputs, inputs]
};

}  // namespace longhaul::cuda
