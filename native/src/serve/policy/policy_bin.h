// Keeps the memory of a released policy for the next update, because fresh pages would cost as much as the arithmetic of a small model.
// defines: PolicyBin
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "model/policy.h"

namespace longhaul {

// May be used on any thread: the last holder of a policy may be a save or a reply.
class PolicyBin {
 public:
  // Returns a shared policy. When the last holder releases the policy, it replaces the one in the bin, if the bin still exists.
  static std::shared_ptr<const Policy> lend(const std::shared_ptr<PolicyBin>& bin, std::unique_ptr<Policy> policy) {
    const auto give_back = [owner = std::weak_ptr<PolicyBin>(bin)](const Policy* spent) noexcept {
      std::unique_ptr<Policy> mine(const_cast<Policy*>(spent));  // the cast is safe: `lend` got a mutable policy
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
    spent_.swap(policy);  // the policy that was there is freed after the lock is released
  }

  std::mutex mutex_;
  std::unique_ptr<Policy> spent_;
};

}  // namespace longhaul
