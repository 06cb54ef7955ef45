#include "wire/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace longhaul {

Channel::Channel(int fd, std::function<void(Frame)> on_frame, OnEnd on_end)
    : fd_(fd), on_frame_(std::move(on_frame)), on_end_(std::move(on_end)) {
  const int flags = fcntl(fd_, F_GETFL);
  if (flags >= 0) fcntl(fd_, F_SETFL, flags & ~O_NONBLOCK);
}

void Channel::start() {
  writer_ = std::thread([this] { write_loop(); });
  reader_ = std::thread([this] { read_loop(); });
}

Channel::~Channel() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  shutdown(fd_, SHUT_RDWR);
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
}

void Channel::send(std::vector<std::uint8_t> bytes) {
  {
    std::lock_guard lock(mutex_);
    unsent_.fetch_add(bytes.size(), std::memory_order_relaxed);
    if (queue_.empty()) {
      queue_ = std::move(bytes);
    } else {
      queue_.insert(queue_.end(), bytes.begin(), bytes.end());
    }
  }
  changed_.notify_all();
}

void Channel::flush(int timeout_ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return queue_.empty() && !writing_; });
}

void Channel::write_loop() {
  std::vector<std::uint8_t> out;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      writing_ = false;
      changed_.notify_all();
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      out.clear();
      out.swap(queue_);
      writing_ = true;
    }
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t wrote = write(fd_, out.data() + done, out.size() - done);
      if (wrote < 0) {
        if (errno == EINTR) continue;
        return;  // the peer is gone; the reader thread sees the end of file and decides what to do
      }
      done += static_cast<std::size_t>(wrote);
      unsent_.fetch_sub(static_cast<std::size_t>(wrote), std::memory_order_relaxed);
    }
  }
}

void Channel::read_loop() {
  std::vector<std::uint8_t> buffer(256 << 10);
  std::size_t begin = 0;
  std::size_t end = 0;
  while (true) {
    while (end - begin >= 4) {
      std::uint32_t length = 0;
      std::memcpy(&length, buffer.data() + begin, sizeof length);
      if (length > max_frame_bytes) {
        on_end_("a frame of " + std::to_string(length) + " bytes; the limit is " + std::to_string(max_frame_bytes));
        return;
      }
      const std::size_t whole = 4 + std::size_t{length};
      if (end - begin < whole) {
        if (buffer.size() < whole) buffer.resize(whole);
        break;
      }
      std::string error;
      const std::uint8_t* body = buffer.data() + begin + 4;
      auto frame = decode_frame(std::vector<std::uint8_t>(body, body + length), error);
      if (!frame) {
        on_end_(error);
        return;
      }
      begin += whole;
      on_frame_(std::move(*frame));
    }
    if (begin > 0) {
      std::memmove(buffer.data(), buffer.data() + begin, end - begin);
      end -= begin;
      begin = 0;
    }
    const ssize_t got = read(fd_, buffer.data() + end, buffer.size() - end);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != ECONNRESET) {
      on_end_(std::string("read: ") + std::strerror(errno));
      return;
    }
    if (got <= 0) {
      on_end_(end == 0 ? "" : "end of file within a frame");
      return;
    }
    end += static_cast<std::size_t>(got);
  }
}

}  // namespace longhaul
