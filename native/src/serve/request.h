// Reads the fields of a request; whatever is missing or wrong becomes one error that names it.
// defines: RequestError, Request
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "wire/frame.h"

namespace longhaul {

// An error reply: `code` as docs/engine-protocol.md lists them.
struct RequestError : std::runtime_error {
  RequestError(const char* error_code, const std::string& message) : std::runtime_error(message), code(error_code) {}
  const char* code;
};

struct Request {
  Frame frame;
  std::string verb;
  std::shared_ptr<std::atomic<bool>> cancelled;

  std::uint32_t id() const { return frame.id; }

  // All throw RequestError("BadInput").
  const Json& field(const char* name) const;
  std::string text(const char* name) const;
  double number(const char* name) const;
  std::int64_t whole(const char* name, std::int64_t least, std::int64_t most) const;
  bool flag(const char* name) const;
  // A lower-case hex sha256.
  std::string digest(const char* name) const;
  std::vector<double> numbers(const char* name) const;
  // Array `tokens`, I32 [n].
  std::vector<std::int32_t> tokens() const;
};

double number_of(const Json& object, const char* where, const char* name);
std::int64_t whole_of(const Json& object, const char* where, const char* name, std::int64_t least, std::int64_t most);

}  // namespace longhaul
