// When the work at hand last made progress. Set by the thread that computes, read by the one that answers `stats`.
// defines: WorkClock
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace longhaul {

class WorkClock {
 public:
  void advance() { advanced_at_ = now_ms(); }
  // There is no work: waiting is no standstill.
  void rest() { advanced_at_ = 0; }

  // Milliseconds since the work made progress; 0 at rest.
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
