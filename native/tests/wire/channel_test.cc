// Frames over a socket: a stream that arrives in pieces cut at any point, the two ways in which a stream ends, and a peer that does not
// read.
#include "wire/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "support/checks.h"

using namespace longhaul;

namespace {

struct Receiver {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Frame> frames;
  std::optional<std::string> end;

  void frame(Frame frame) {
    std::lock_guard lock(mutex);
    frames.push_back(std::move(frame));
    changed.notify_all();
  }
  void ended(const std::string& error) {
    std::lock_guard lock(mutex);
    end = error;
    changed.notify_all();
  }
  bool wait(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), holds);
  }
};

struct Pair {
  int peer = -1;
  Receiver receiver;
  std::unique_ptr<Channel> channel;

  Pair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) std::abort();
    peer = fds[0];
    channel = std::make_unique<Channel>(
        fds[1], [this](Frame frame) { receiver.frame(std::move(frame)); },
        [this](const std::string& error) { receiver.ended(error); });
    channel->start();
  }
  ~Pair() {
    if (peer >= 0) close(peer);
  }
  void put(const std::vector<std::uint8_t>& bytes, std::size_t piece) const {
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      CHECK(write(peer, bytes.data() + at, std::min(piece, bytes.size() - at)) > 0);
    }
  }
  void hang_up() {
    close(peer);
    peer = -1;
  }
};

std::vector<std::uint8_t> sample_frame(std::uint32_t id, const std::vector<std::int32_t>& tokens) {
  Json header;
  header.set("verb", "x");
  const OutgoingArray arrays[] = {{"tokens",
                                   DType::i32,
                                   {static_cast<std::int64_t>(tokens.size())},
                                   {reinterpret_cast<const std::uint8_t*>(tokens.data()), tokens.size() * 4}}};
  return encode_frame(id, std::move(header), arrays);
}

void any_cut_gives_the_same_frames() {
  std::vector<std::int32_t> many(100'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int32_t>(i * 7);
  std::vector<std::uint8_t> stream;
  for (const auto& frame : {sample_frame(1, {1, 2, 3}), sample_frame(2, {}), sample_frame(3, many), sample_frame(4, {5})}) {
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (const std::size_t piece : {std::size_t{1} << 24, std::size_t{4096}, std::size_t{97}}) {
    Pair pair;
    pair.put(stream, piece);
    CHECK(pair.receiver.wait([&] { return pair.receiver.frames.size() == 4; }));
    const ArrayView* tokens = pair.receiver.frames[2].array("tokens");
    CHECK(tokens != nullptr && tokens->bytes.size() == many.size() * 4);
    CHECK(std::memcmp(tokens->bytes.data(), many.data(), many.size() * 4) == 0);
    pair.hang_up();
    CHECK(pair.receiver.wait([&] { return pair.receiver.end == ""; }));
  }
}

void a_broken_stream_ends_with_a_reason() {
  const auto end_of = [](const std::vector<std::uint8_t>& bytes) {
    Pair pair;
    pair.put(bytes, 1 << 20);
    pair.hang_up();
    CHECK(pair.receiver.wait([&] { return pair.receiver.end.has_value(); }));
    return *pair.receiver.end;
  };
  auto half = sample_frame(1, {1, 2, 3});
  half.pop_back();
  CHECK(end_of(half) == "end of file within a frame");
  CHECK(end_of({0xFF, 0xFF, 0xFF, 0xFF}).find("the limit is") != std::string::npos);
  CHECK(end_of({4, 0, 0, 0, 1, 0, 0, 0}).find("shorter than") != std::string::npos);
  CHECK(end_of({8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) == "id 0 is not used");
  CHECK(end_of({8, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0}).find("does not fit") != std::string::npos);
}

void a_peer_that_does_not_read_never_blocks_send() {
  Pair pair;
  const std::vector<std::uint8_t> block(1 << 20, 7);
  for (int i = 0; i < 16; ++i) pair.channel->send(block);
  CHECK(pair.channel->unsent_bytes() > std::size_t{8} << 20);
  std::vector<std::uint8_t> buffer(1 << 20);
  std::size_t got = 0;
  while (got < std::size_t{16} << 20) {
    const ssize_t part = read(pair.peer, buffer.data(), buffer.size());
    if (part <= 0) break;
    got += static_cast<std::size_t>(part);
  }
  CHECK(got == std::size_t{16} << 20);
  pair.channel->flush(5000);
  CHECK(pair.channel->unsent_bytes() == 0);
}

}  // namespace

int main() {
  signal(SIGPIPE, SIG_IGN);
  any_cut_gives_the_same_frames();
  a_broken_stream_ends_with_a_reason();
  a_peer_that_does_not_read_never_blocks_send();
  return test::finish();
}
