// The time at which the current work last made progress. The computing thread sets it; the thread that answers `stats` reads it.
// defines: WorkClock
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace longhaul {

class WorkClock {
 public:
  void advance() { advanced_at_ = now_ms(); }
  // There is no work, so waiting is not a stall.
  void rest() { advanced_at_ = 0; }

  // Milliseconds since the work last made progress; 0 without work.
  std::int64_t busy_ms() const {
    const std::int64_t at = advanced_at_;
    return at == 0 ? 0 : now_ms() - at;
  }

 private:
  static std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  std::atomic<std::int64_t> advanced_at_{0};
};

}  // namespace longhaul
