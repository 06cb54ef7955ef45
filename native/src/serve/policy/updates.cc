#include "serve/policy/updates.h"

#include <string>

#include "backend/device_error.h"
#include "serve/policy/spot_check.h"
#include "serve/protocol/request_settings.h"
#include "state/batch_file.h"
#include "state/digest/digest.h"

namespace longhaul {
namespace {

// The reference weights; null if the loss needs none.
std::shared_ptr<const Weights> require_reference(const Request& request, const LossSettings& loss, const Reference& reference) {
  if (!loss.wants_reference()) return nullptr;
  const std::string wanted = request.digest("reference");
  if (!reference.weights) throw RequestError("WrongReference", "no reference weights are loaded; the update needs " + wanted);
  if (wanted != reference.digest) {
    throw RequestError("WrongReference", "holds reference " + reference.digest + "; the update needs " + wanted);
  }
  return reference.weights;
}

Json reply_of(const UpdateReport& report) {
  Json metrics{Json::Object{}};
  for (const auto& [name, value] : report.metrics) metrics.set(name, value);
  Json reason;
  reason.set("reason", report.reason);
  Json fields;
  fields.set("applied", report.applied ? Json(true) : std::move(reason));
  fields.set("metrics", std::move(metrics));
  return fields;
}

// Throws DeviceDiffers if a device computes with other values than the state's. After a load, or after an update that was given up, its copy of
// the host's values may be wrong.
void require_held_values(const HeldState& held, const std::string& base, Backend& backend, ThreadPool& pool) {
  const std::string found = state_digest(*held.policy, backend, pool, base).digest;
  if (found != held.digest)
    throw RequestError("DeviceDiffers", backend.device().name + " has the state " + found + " in place of " + held.digest +
                                            "; no update is applied. Take the node out of service");
}

}  // namespace

void Updates::forget() {
  trainer_ = nullptr;
  bin_->take();
}

std::shared_ptr<const HeldState> Updates::compute(const Request& request, const HeldState& held, const Reference& reference,
                                                  Backend& backend, ThreadPool& pool) {
  UpdateSettings settings = read_update_settings(request);
  settings.reference = require_reference(request, settings.loss, reference);
  const auto mini_batches = static_cast<int>(settings.learning_rates.size());
  const BatchFile file = read_batch(request.text("batch_path"), request.digest("batch_sha256"), held.digest, mini_batches);
  const Batch batch = file.view();
  validate(batch, held.policy->architecture(), mini_batches);
  // A GPU steps in place, so it needs its own copy even of the held weights.
  const bool stepped = backend.device().kind != "cpu" && !held.policy->adapters();
  const bool own_reference = settings.reference && (stepped || settings.reference != held.policy->shared_weights());
  settings.passes = memory_.plan_update(*held.policy, batch, own_reference);
  settings.cancelled = request.cancelled.get();
  settings.advanced = advanced_;
  settings.progress = [this, id = request.id()](int done, int total) {
    replies_.progress(id, static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
  };
  const std::string base = held.policy->adapters() != nullptr ? held.weights_digest : std::string();
  if (backend.device().kind != "cpu") {
    require_held_values(held, base, backend, pool);
    const std::string step_id = request.digest("step_id");
    const std::uint64_t target = std::stoull(step_id.substr(0, 8), nullptr, 16);
    settings.checked_gradient = std::stoull(step_id.substr(8, 16), nullptr, 16);
    settings.first_logprobs = [&, target](const MiniBatch& mini, std::span<const float> logprobs) {
      require_same_logprobs(*held.policy, mini, logprobs, settings.temperature, target, backend.numerics().oracle, pool, advanced_);
    };
  }
  UpdateReport report = train(*held.policy, batch, settings, backend);
  if (!report.applied && report.reason == "cancelled") throw RequestError("Cancelled", "cancelled");

  try {
    auto next = std::make_shared<HeldState>(held);
    next->last_step_id = request.digest("step_id");
    next->last_update = reply_of(report);
    if (!report.applied) return next;
    const bool adapters = report.next->adapters() != nullptr;
    const StateDigest hashed = state_digest(*report.next, backend, pool, base);
    next->digest = hashed.digest;
    next->hashed_by_device = hashed.by_device;
    if (!adapters) next->weights_digest.clear();
    next->policy = lend(std::move(report.next));
    backend.hold(next->policy);
    return next;
  } catch (...) {
    trainer_ = nullptr;  // the backend forgets the steps of an update that is not held
    throw;
  }
}

UpdateReport Updates::train(const Policy& policy, const Batch& batch, const UpdateSettings& settings, Backend& backend) {
  if (!trainer_) trainer_ = std::make_unique<Trainer>(backend);
  if (auto spent = bin_->take()) trainer_->recycle(std::move(spent));
  try {
    return trainer_->update(policy, batch, settings);
  } catch (const WrongValue& error) {
    trainer_ = nullptr;
    throw RequestError("DeviceDiffers", std::string("this update is not applied: ") + error.what() +
                                            ". The GPU computes wrong values: take the node out of service");
  } catch (...) {
    // An error may have left the trainer's memory in an inconsistent state.
    trainer_ = nullptr;
    throw;
  }
}

}  // namespace longhaul
