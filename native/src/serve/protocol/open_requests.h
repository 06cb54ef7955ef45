// Requests that are received but not yet answered, by id, each with the flag that a cancellation sets.
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
  // Returns the new request's flag; null if a request with this id is open.
  std::shared_ptr<std::atomic<bool>> open(std::uint32_t id) {
    auto cancelled = std::make_shared<std::atomic<bool>>(false);
    std::lock_guard lock(mutex_);
    return flags_.emplace(id, cancelled).second ? cancelled : nullptr;
  }

  // An unknown id is no error: the request may have been answered while the cancellation was on its way.
  void cancel(std::uint32_t id) {
    std::lock_guard lock(mutex_);
    const auto found = flags_.find(id);
    if (found == flags_.end()) return;
    *found->second = true;
    ++cancellations_;  // set after the flag: a thread that sees the count also sees the flag
  }

  void close(std::uint32_t id) {
    std::lock_guard lock(mutex_);
    flags_.erase(id);
  }

  // Number of flags set so far. While it does not change, no flag needs to be checked.
  std::uint64_t cancellations() const { return cancellations_; }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<std::atomic<bool>>> flags_;
  std::atomic<std::uint64_t> cancellations_{0};
};

}  // namespace longhaul
