// What a device has computed or sent wrongly: it is not trusted any more.
// defines: ErringDevice
#pragma once

#include <mutex>
#include <string>
#include <utility>

namespace longhaul {

// Noted on the engine's thread and on the saver's.
class ErringDevice {
 public:
  void note(std::string what) {
    std::lock_guard lock(mutex_);
    what_ = std::move(what);
  }

  // Empty if it has not erred.
  std::string what() const {
    std::lock_guard lock(mutex_);
    return what_;
  }

 private:
  mutable std::mutex mutex_;
  std::string what_;
};

}  // namespace longhaul
