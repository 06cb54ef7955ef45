// Sends the progress of a long verb as frames of its request: the first, the last, and a few per second between them. A cancellation ends
// the verb here.
// defines: ProgressFrames
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "serve/protocol/replies.h"
#include "serve/protocol/request.h"

namespace longhaul {

// Calls come one at a time, from any thread. Copies share their state.
class ProgressFrames {
 public:
  ProgressFrames(Replies& replies, const Request& request)
      : replies_(&replies), id_(request.id()), cancelled_(request.cancelled), last_(std::make_shared<Clock::time_point>()) {}

  // Sends a progress frame if one is due. Throws RequestError("Cancelled").
  void operator()(std::uint64_t done, std::uint64_t total) const {
    if (*cancelled_) throw RequestError("Cancelled", "cancelled");
    const auto now = Clock::now();
    if (done < total && now - *last_ < std::chrono::milliseconds(200)) return;
    *last_ = now;
    replies_->progress(id_, done, total);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Replies* replies_;
  std::uint32_t id_;
  std::shared_ptr<std::atomic<bool>> cancelled_;
  std::shared_ptr<Clock::time_point> last_;
};

}  // namespace longhaul
