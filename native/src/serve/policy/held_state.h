// The state that the engine holds, as a value that never changes. An update or a load makes a new value and then exchanges the pointer. So
// after a failure the digest still names the state that is held (R12), and a concurrent save writes the requested state.
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
  // Whether a device has computed the digest. The host's arrays, which the device sent, have not been compared with it yet.
  bool hashed_by_device = false;
  // Digest of the weights without adapters. Empty after an update that changed the weights, until the digest is requested.
  std::string weights_digest;
  // Id of the last update in this process since the load, whether it was applied or not; empty after a load.
  std::optional<std::string> last_step_id;
  // The reply to that update.
  Json last_update;
};

// Reference weights of a KL term; a null pointer means no reference.
struct Reference {
  std::shared_ptr<const Weights> weights;
  std::string digest;
};

// Read on any thread; exchanged only on the engine's thread.
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
