// Requests that were received and not yet answered, by id, and the flag of each that a cancellation raises.
// defines: OpenRequests
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace longhaul {

class OpenRequests {
 public:
  // The new request's flag; null if a request with this id is open.
  std::shared_ptr<std::atomic<bool>> open(std::uint32_t id) {
    auto cancelled = std::make_shared<std::atomic<bool>>(false);
    std::lock_guard lock(mutex_);
    return flags_.emplace(id, cancelled).second ? cancelled : nullptr;
  }

  // A request that has ended is no error: the cancellation crossed its reply.
  void cancel(std::uint32_t id) {
    std::lock_guard lock(mutex_);
    const auto found = flags_.find(id);
    if (found == flags_.end()) return;
    *found->second = true;
    ++cancellations_;  // behind the flag: who sees the count sees the flag
  }

  void close(std::uint32_t id) {
    std::lock_guard lock(mutex_);
    flags_.erase(id);
  }

  // Number of flags raised so far: while it does not change, no flag needs to be checked.
  std::uint64_t cancellations() const { return cancellations_; }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<std::atomic<bool>>> flags_;
  std::atomic<std::uint64_t> cancellations_{0};
};

}  // namespace longhaul
