// The socket: one thread reads frames, one writes them. Invariant: `send` never waits for the peer, so a slow peer can
// stop admission (see `unsent_bytes`) but never decoding.
// defines: Channel
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "wire/frame.h"

namespace longhaul {

class Channel {
 public:
  // Called when the stream has ended. `error` is empty at a clean end of file.
  using OnEnd = std::function<void(const std::string& error)>;

  // From `start` on, `on_frame` gets each frame on the reader's thread. While it blocks, further frames stay in the
  // socket.
  Channel(int fd, std::function<void(Frame)> on_frame, OnEnd on_end);
  ~Channel();
  // Starts both threads; call it before the first `send`.
  void start();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void send(std::vector<std::uint8_t> bytes);

  // Bytes given to `send` that are not yet written to the socket.
  std::size_t unsent_bytes() const { return unsent_.load(std::memory_order_relaxed); }

  // Waits until everything is written, at most `timeout_ms`.
  void flush(int timeout_ms);

 private:
  void read_loop();
  void write_loop();

  const int fd_;
  std::function<void(Frame)> on_frame_;
  OnEnd on_end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint8_t> queue_;
  bool writing_ = false;
  bool stopping_ = false;
  std::atomic<std::size_t> unsent_{0};
  std::thread writer_;
  std::thread reader_;
};

}  // namespace longhaul
