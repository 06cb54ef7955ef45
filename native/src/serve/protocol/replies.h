// Sends replies to the peer, from any thread. Every reply names incarnation and state, and closes its request.
// defines: Replies
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include "serve/protocol/errors.h"
#include "serve/policy/held_state.h"
#include "serve/protocol/open_requests.h"
#include "wire/channel.h"

namespace longhaul {

class Replies {
 public:
  using Arrays = std::span<const OutgoingArray>;
  static constexpr std::size_t most_unsent_bytes = std::size_t{64} << 20;

  Replies(Channel& channel, const StateHolder& held, OpenRequests& open);

  void reply(std::uint32_t id, Json fields, Arrays arrays = {});
  void refuse(std::uint32_t id, const ErrorReply& error);
  // Answers with the exception that `verb` threw.
  void refuse(std::uint32_t id, const std::string& verb, std::exception_ptr error) { refuse(id, error_reply(error, verb)); }
  // Sends progress; the request stays open.
  void progress(std::uint32_t id, std::uint64_t done, std::uint64_t total);

  // True if too many sent bytes are still unread by the peer.
  bool blocked() const { return channel_.unsent_bytes() > most_unsent_bytes; }

  // For tests: ends the process in the middle of the next reply.
  void break_next() { breaks_ = true; }

 private:
  void send(std::uint32_t id, Json header, Arrays arrays);

  Channel& channel_;
  const StateHolder& held_;
  OpenRequests& open_;
  const std::string incarnation_;
  std::atomic<bool> breaks_{false};
};

}  // namespace longhaul
