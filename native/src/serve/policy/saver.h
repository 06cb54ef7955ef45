// Writes files on a thread of its own, beside generations; one at a time.
// defines: Saver
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "serve/protocol/replies.h"

namespace longhaul {

class Saver {
 public:
  // Writes, and answers the fields of the reply.
  using Work = std::function<Json()>;

  // `ended` is called on the saver's thread behind each reply.
  Saver(Replies& replies, std::function<void()> ended) : replies_(replies), ended_(std::move(ended)) {}
  ~Saver() { join(); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  bool busy() const { return busy_; }

  // Answers request `id` when `work` is done, or with what it throws; what `work` holds is let go of before. Only while it is
  // not busy.
  void start(std::uint32_t id, std::string verb, Work work);

  // Waits until what was started has ended.
  void join();

 private:
  void run(std::uint32_t id, const std::string& verb, Work work);

  Replies& replies_;
  std::function<void()> ended_;
  std::atomic<bool> busy_{false};
  std::thread thread_;
};

}  // namespace longhaul
