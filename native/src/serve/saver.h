// Writes a state to disk on a thread of its own, beside generations; one at a time.
// defines: Saver
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "serve/held_state.h"
#include "serve/replies.h"

namespace longhaul {

class Saver {
 public:
  // `ended` is called on the saver's thread behind each reply.
  Saver(Replies& replies, std::function<void()> ended) : replies_(replies), ended_(std::move(ended)) {}
  ~Saver() { join(); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  bool busy() const { return busy_; }

  // Answers request `id` when the file is there. Only while it is not busy.
  void start(std::shared_ptr<const HeldState> state, std::string path, std::uint32_t id);

  // Waits until what was started has ended.
  void join();

 private:
  void save(const HeldState& state, const std::string& path, std::uint32_t id);

  Replies& replies_;
  std::function<void()> ended_;
  std::atomic<bool> busy_{false};
  std::thread thread_;
};

}  // namespace longhaul
