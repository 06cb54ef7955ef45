// The verb `update`: a batch file becomes the next state, computed beside the one that is held. Keeps the trainer, and with it
// its working memory, from one update to the next.
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
  // `advanced` is called as the work gets on, on the engine's thread; what it throws ends the update.
  Updates(Replies& replies, const MemoryGuard& memory, std::function<void()> advanced)
      : replies_(replies), memory_(memory), advanced_(std::move(advanced)), bin_(std::make_shared<PolicyBin>()) {}

  // Puts a policy into use; its memory serves a later update.
  std::shared_ptr<const Policy> lend(std::unique_ptr<Policy> policy) { return PolicyBin::lend(bin_, std::move(policy)); }

  // Gives all working memory back: before a load, or where the threads change.
  void forget();

  // The state after the requested update, with its digest, `step_id` and reply (`last_update`); the held state with the latter two if the
  // update was not applied. Changes nothing. Throws RequestError, BatchError and whatever ends an update.
  std::shared_ptr<const HeldState> compute(const Request& request, const HeldState& held, const Reference& reference,
                                           ThreadPool& pool);

 private:
  UpdateReport train(const Policy& policy, const Batch& batch, const UpdateSettings& settings, ThreadPool& pool);

  Replies& replies_;
  const MemoryGuard& memory_;
  std::function<void()> advanced_;
  std::shared_ptr<PolicyBin> bin_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace longhaul
