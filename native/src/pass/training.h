// What an update asks of a device: passes over forests, and the steps that follow.
#pragma once

#include <cstdint>
#include <span>

#include "model/optimizer.h"
#include "model/policy.h"
#include "pass/plan/forest.h"
#include "pass/plan/pass_settings.h"

namespace longhaul {

struct Oracle;

/// Forward and backward passes over forests, and the steps that follow, in memory that is kept between calls. Gradients stay where they were
/// computed. An update calls `prepare`; `begin` and `logprobs` for log-probs that must not see its steps; for each mini-batch `begin`,
/// `gradient`, `gradient_norm` and `step`; then `collect`, or `give_up`.
class Training {
 public:
  virtual ~Training() = default;

  /// `most_rows`: of the largest mini-batch. Memory of earlier updates is kept, unless the settings allow less.
  virtual void prepare(const ForestPassSettings& settings, int most_rows) = 0;

  /// Sets the mini-batch. `target_rows` may be in any order and repeat. The arguments must outlive the calls that follow. `advanced` and
  /// `passed` are called as pass_settings.h says.
  virtual void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
                     std::span<const int32_t> target_tokens, float temperature, OnAdvance advanced, OnAdvance passed) = 0;

  /// log softmax(logits / temperature) of each target's token.
  virtual void logprobs(std::span<float> out) = 0;

  /// Has a part of the next gradient, which `choice` selects, computed by the oracle too; if the device's bits differ, `gradient` throws
  /// WrongValue (device_error.h). A device that is the oracle has nothing to compare with. Called after `begin`.
  virtual void check_gradient(const Oracle& oracle, std::uint64_t choice) = 0;

  /// Computes log-probs and entropies; then calls `derive` once, when all are known; then sets the gradient of what the policy trains.
  virtual void gradient(const Derive& derive, bool trains_entropy) = 0;

  /// Of the last gradient: see `gradient_norm` in model/optimizer.h.
  virtual double gradient_norm() = 0;

  /// One optimizer step with the last gradient: see `optimizer_step` in model/optimizer.h. A device steps where its arrays lie; then the
  /// host's arrays of `next` are of no account until `collect`.
  virtual void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                    const OptimizerSettings& settings) = 0;

  /// Brings the host's arrays of `next` up to date, for files, exports and checks.
  virtual void collect(Policy& next) = 0;

  /// Forgets the steps since `prepare`: the update is not applied.
  virtual void give_up() noexcept = 0;
};

}  // namespace longhaul
