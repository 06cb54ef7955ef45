// The state that the engine holds, as one value that never changes: an update or a load makes another one and exchanges the
// pointer, so no failure on the way leaves weights under another state's digest (R12), and a save beside it writes what it
// was asked for.
// defines: HeldState, StateHolder, Reference
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "model/policy.h"
#include "wire/json.h"

namespace longhaul {

struct HeldState {
  std::shared_ptr<const Policy> policy;
  std::string digest;
  // Digest of the weights without adapters. Empty after an update that changed them, until somebody asks.
  std::string weights_digest;
  // Id of the update that led here in this process, applied or not; none after a load.
  std::optional<std::string> last_step_id;
  // What that update was answered.
  Json last_update;
};

// Weights that a KL term is taken against; none where there is no pointer.
struct Reference {
  std::shared_ptr<const Weights> weights;
  std::string digest;
};

// Read on any thread, exchanged on the engine's alone.
class StateHolder {
 public:
  // Null before the first load.
  std::shared_ptr<const HeldState> get() const {
    std::lock_guard lock(mutex_);
    return state_;
  }

  void exchange(std::shared_ptr<const HeldState> next) noexcept {
    std::lock_guard lock(mutex_);
    state_.swap(next);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const HeldState> state_;
};

}  // namespace longhaul
