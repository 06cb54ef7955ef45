// Divides the work between threads. The reader's thread receives requests and answers `stats` and `cancel` itself, so both work during an
// update. The engine's thread does everything else in order of arrival. Invariant: work that depends on the state has ended before the
// state changes (R15).
// defines: Server, ServerOptions
#pragma once

#include <cstdint>
#include <optional>

#include "serve/policy/held_state.h"
#include "serve/protocol/mailbox.h"
#include "serve/protocol/open_requests.h"
#include "serve/protocol/replies.h"
#include "serve/protocol/request.h"
#include "serve/verbs.h"
#include "serve/generation/work_clock.h"
#include "wire/channel.h"

namespace longhaul {

struct ServerOptions {
  int fd = 3;
  // Allows the verb `fault`.
  bool test_faults = false;
  MakeBackend make_backend = make_cpu_backend;
};

class Server {
 public:
  explicit Server(const ServerOptions& options);

  // Serves until `shutdown`; returns the exit code of the process. An end of file or a broken frame ends the process at once.
  int run();

 private:
  // Runs on the reader's thread.
  void receive(Frame frame);
  void cancel(const Request& request);
  void stats(std::uint32_t id);

  // Runs on the engine's thread.
  void handle_all();

  Mailbox mailbox_;
  OpenRequests open_;
  StateHolder held_;
  WorkClock clock_;
  Channel channel_;
  Replies replies_;
  Verbs verbs_;
  std::uint64_t cancellations_ = 0;  // cancellations that the engine has handled
  std::optional<Request> deferred_;  // waits until it may run; no request after it is taken
};

}  // namespace longhaul
