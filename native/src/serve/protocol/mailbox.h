// Requests on their way from the reader's thread to the engine's thread, in order of arrival.
// defines: Mailbox
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "serve/protocol/request.h"

namespace longhaul {

class Mailbox {
 public:
  // Above this the reader stops reading, and the sender's socket fills up.
  static constexpr std::size_t most_bytes = std::size_t{1} << 30;

  void put(Request request) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return bytes_ < most_bytes; });
    bytes_ += request.frame.body.size();
    requests_.push_back(std::move(request));
    changed_.notify_all();
  }

  std::optional<Request> take() {
    std::lock_guard lock(mutex_);
    if (requests_.empty()) return std::nullopt;
    Request request = std::move(requests_.front());
    requests_.pop_front();
    bytes_ -= request.frame.body.size();
    changed_.notify_all();
    return request;
  }

  // Waits until a request arrives, `wake` is called, or `timeout` has passed.
  void wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return woken_ || !requests_.empty(); });
    woken_ = false;
  }

  void wake() {
    {
      std::lock_guard lock(mutex_);
      woken_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> requests_;
  std::size_t bytes_ = 0;
  bool woken_ = false;
};

}  // namespace longhaul
