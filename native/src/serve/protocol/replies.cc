#include "serve/protocol/replies.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "serve/log.h"
#include "state/digest/sha256.h"

namespace longhaul {
namespace {

std::string random_incarnation() {
  std::uint8_t bytes[8];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw std::system_error(errno, std::generic_category(), "getrandom");
  return to_hex(bytes);
}

}  // namespace

Replies::Replies(Channel& channel, const StateHolder& held, OpenRequests& open)
    : channel_(channel), held_(held), open_(open), incarnation_(random_incarnation()) {}

void Replies::reply(std::uint32_t id, Json fields, Arrays arrays) {
  fields.set("ok", true);
  send(id, std::move(fields), arrays);
}

void Replies::refuse(std::uint32_t id, const ErrorReply& refusal) {
  Json error;
  error.set("code", refusal.code);
  error.set("message", is_utf8(refusal.message) ? refusal.message : std::string("(a message that is not UTF-8)"));
  for (const JsonMember& fact : refusal.facts) error.set(fact.name, fact.value);
  Json header;
  header.set("ok", false);
  header.set("error", std::move(error));
  send(id, std::move(header), {});
}

void Replies::progress(std::uint32_t id, std::uint64_t done, std::uint64_t total) {
  Json fields;
  fields.set("done", done);
  fields.set("total", total);
  Json header;
  header.set("progress", std::move(fields));
  channel_.send(encode_frame(id, std::move(header)));
}

void Replies::send(std::uint32_t id, Json header, Arrays arrays) {
  header.set("incarnation", incarnation_);
  const auto held = held_.get();
  header.set("state", held ? Json(held->digest) : Json(nullptr));
  std::vector<std::uint8_t> bytes = encode_frame(id, std::move(header), arrays);
  if (breaks_) {
    bytes.resize(bytes.size() / 2);
    channel_.send(std::move(bytes));
    channel_.flush(1000);
    log_line("warn", "test fault: half a frame was sent");
    _exit(70);
  }
  // Before the reply is sent: the peer may use the id again at once.
  open_.close(id);
  channel_.send(std::move(bytes));
}

}  // namespace longhaul
