// Writes files on its own thread, beside generations, one at a time.
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
  // Writes, and returns the fields of the reply.
  using Work = std::function<Json()>;

  // `ended` is called on the saver's thread after each reply.
  Saver(Replies& replies, std::function<void()> ended) : replies_(replies), ended_(std::move(ended)) {}
  ~Saver() { join(); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  bool busy() const { return busy_; }

  // Runs `work`, then answers request `id` with its result, or with the exception it threw. `work` is destroyed before
  // the reply is sent. Call it only while the saver is not busy.
  void start(std::uint32_t id, std::string verb, Work work);

  // Waits until the started work has ended.
  void join();

 private:
  void run(std::uint32_t id, const std::string& verb, Work work);

  Replies& replies_;
  std::function<void()> ended_;
  std::atomic<bool> busy_{false};
  std::thread thread_;
};

}  // namespace longhaul
