// The verb `update`: computes the next state from a batch file, beside the held state. Keeps the trainer, and so its working memory, from
// one update to the next.
// defines: Updates
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "serve/policy/held_state.h"
#include "serve/policy/memory_guard.h"
#include "serve/policy/policy_bin.h"
#include "serve/protocol/replies.h"
#include "serve/protocol/request.h"
#include "train/update.h"

namespace longhaul {

class Updates {
 public:
  // `advanced` is called on the engine's thread as the work proceeds; an exception from it ends the update.
  Updates(Replies& replies, const MemoryGuard& memory, std::function<void()> advanced)
      : replies_(replies), memory_(memory), advanced_(std::move(advanced)), bin_(std::make_shared<PolicyBin>()) {}

  // Returns the policy for use; when its last holder releases it, a later update reuses its memory.
  std::shared_ptr<const Policy> lend(std::unique_ptr<Policy> policy) { return PolicyBin::lend(bin_, std::move(policy)); }

  // Frees all working memory: before a load, or when the backend changes.
  void forget();

  // Returns the state after the requested update, with its digest, `step_id` and reply (`last_update`). If the update was not applied,
  // returns the held state with the new `step_id` and reply. Does not change the held state. Throws RequestError, BatchError and any
  // exception of an update.
  std::shared_ptr<const HeldState> compute(const Request& request, const HeldState& held, const Reference& reference,
                                           Backend& backend, ThreadPool& pool);

 private:
  UpdateReport train(const Policy& policy, const Batch& batch, const UpdateSettings& settings, Backend& backend);

  Replies& replies_;
  const MemoryGuard& memory_;
  std::function<void()> advanced_;
  std::shared_ptr<PolicyBin> bin_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace longhaul
