// The state that the engine holds, as one value that never changes: an update or a load makes another one and exchanges the
// pointer, so no failure on the way leaves weights under another state's digest (R12), and a save beside it writes what it
// was asked for.
// defines: HeldState
#pragma once

#include <memory>
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

}  // namespace longhaul
