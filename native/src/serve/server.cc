#include "serve/server.h"

#include <unistd.h>

#include "serve/log.h"
#include "serve/policy/memory_guard.h"

namespace longhaul {

Server::Server(const ServerOptions& options)
    : channel_(
          options.fd, [this](Frame frame) { receive(std::move(frame)); },
          [](const std::string& error) {
            // _exit: the engine's thread may be in the middle of an update, and nobody is left to read the result.
            if (error.empty()) _exit(0);
            log_line("error", "broken stream: " + error);
            _exit(3);
          }),
      replies_(channel_, held_, open_),
      verbs_({.test_faults = options.test_faults, .make_backend = options.make_backend, .save_ended = [this] { mailbox_.wake(); }}, replies_,
             held_, clock_) {}

int Server::run() {
  channel_.start();
  while (true) {
    clock_.advance();
    handle_all();
    if (verbs_.shutting_down()) break;
    if (const std::uint64_t count = open_.cancellations(); count != cancellations_) {
      cancellations_ = count;
      verbs_.drop_cancelled();
    }
    if (verbs_.ready()) {
      verbs_.step();
      continue;
    }
    if (deferred_ && !verbs_.must_wait(*deferred_)) continue;  // the awaited work has just ended
    if (!deferred_) clock_.rest();
    // The socket and a save may finish without a signal to the mailbox, so the wait is short while the engine waits for
    // either.
    const bool polling = replies_.blocked() || deferred_.has_value();
    mailbox_.wait(std::chrono::milliseconds(polling ? 5 : 1000));
  }
  verbs_.finish();
  channel_.flush(5000);
  return 0;
}

void Server::receive(Frame frame) {
  Request request;
  request.frame = std::move(frame);
  try {
    request.verb = request.text("verb");
  } catch (const RequestError& error) {
    return replies_.refuse(request.id(), {error.code, error.what(), {}});
  }
  if (request.verb == "stats") return stats(request.id());
  if (request.verb == "cancel") return cancel(request);
  request.cancelled = open_.open(request.id());
  if (!request.cancelled) return replies_.refuse(request.id(), {"BadInput", "a request with this id is still open", {}});
  mailbox_.put(std::move(request));
}

void Server::cancel(const Request& request) {
  try {
    open_.cancel(static_cast<std::uint32_t>(request.whole("target", 1, 0xFFFFFFFF)));
  } catch (const RequestError& error) {
    return replies_.refuse(request.id(), {error.code, error.what(), {}});
  }
  mailbox_.wake();
  replies_.reply(request.id(), {});
}

void Server::stats(std::uint32_t id) {
  const GenerationCounters& counters = verbs_.generation_counters();
  Json values;
  values.set("generated_tokens", counters.generated_tokens.load());
  values.set("prefilled_tokens", counters.prefilled_tokens.load());
  values.set("reused_tokens", counters.reused_tokens.load());
  values.set("passes", counters.passes.load());
  values.set("preemptions", counters.preemptions.load());
  values.set("evicted_blocks", counters.evicted_blocks.load());
  values.set("running", counters.running.load());
  values.set("waiting", counters.waiting.load());
  values.set("updates", verbs_.updates());
  values.set("unsent_bytes", static_cast<std::uint64_t>(channel_.unsent_bytes()));
  values.set("resident_bytes", static_cast<std::uint64_t>(resident_bytes()));
  values.set("busy_ms", clock_.busy_ms());
  Json fields;
  fields.set("stats", std::move(values));
  replies_.reply(id, std::move(fields));
}

void Server::handle_all() {
  while (!verbs_.shutting_down()) {
    if (!deferred_) {
      deferred_ = mailbox_.take();
      if (!deferred_) return;
    }
    if (verbs_.must_wait(*deferred_) && !*deferred_->cancelled) return;
    const Request request = std::move(*deferred_);
    deferred_.reset();
    verbs_.handle(request);
  }
}

}  // namespace longhaul
