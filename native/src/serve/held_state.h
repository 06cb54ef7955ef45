// The state that the engine holds, as one value that never changes: an update or a load makes another one and exchanges the
// pointer, so no failure on the way leaves weights under another state's digest (R12), and a save beside it writes what it
// was asked for.
// defines: HeldState, StateHolder
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
  // Of the update that led here in this process, applied or not; none after a load.
  std::optional<std::string> last_step_id;
  // What that update was answered.
  Json last_update;
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
