// Keeps the memory of a released policy for the next update, because fresh pages would cost as much as the arithmetic of a small model.
// defines: PolicyBin
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "model/policy.h"

namespace longhaul {

// On any thread: the last holder of a policy may be a save or a reply.
class PolicyBin {
 public:
  // A policy that is put into the bin, in the place of what lies there, once its last holder lets go of it. The bin may be gone by then.
  static std::shared_ptr<const Policy> lend(const std::shared_ptr<PolicyBin>& bin, std::unique_ptr<Policy> policy) {
    const auto give_back = [owner = std::weak_ptr<PolicyBin>(bin)](const Policy* spent) noexcept {
      std::unique_ptr<Policy> mine(const_cast<Policy*>(spent));  // it came in as one that may be changed
      if (const auto held = owner.lock()) held->put(std::move(mine));
    };
    return std::shared_ptr<const Policy>(policy.release(), give_back);
  }

  // The stored memory; null if there is none.
  std::unique_ptr<Policy> take() {
    std::lock_guard lock(mutex_);
    return std::move(spent_);
  }

 private:
  void put(std::unique_ptr<Policy> policy) noexcept {
    std::lock_guard lock(mutex_);
    spent_.swap(policy);  // what lay there is freed behind the lock
  }

  std::mutex mutex_;
  std::unique_ptr<Policy> spent_;
};

}  // namespace longhaul
