// Reads the fields of a request. A missing or wrong field becomes an error that names it.
// defines: RequestError, Request, number_of, whole_of, text_of, refuse_unknown_keys
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "wire/frame.h"

namespace longhaul {

// Becomes an error reply: `code` is listed in docs/engine-protocol.md; `facts` become members of the error.
struct RequestError : std::runtime_error {
  RequestError(const char* error_code, const std::string& message, Json::Object error_facts = {})
      : std::runtime_error(message), code(error_code), facts(std::move(error_facts)) {}
  const char* code;
  Json::Object facts;
};

struct Request {
  Frame frame;
  std::string verb;
  std::shared_ptr<std::atomic<bool>> cancelled;

  std::uint32_t id() const { return frame.id; }
  bool has(std::string_view name) const { return frame.header.find(name) != nullptr; }

  // All throw RequestError("BadInput").
  const Json& field(const char* name) const;
  std::string text(const char* name) const;
  double number(const char* name) const;
  std::int64_t whole(const char* name, std::int64_t least, std::int64_t most) const;
  bool flag(const char* name) const;
  // A digest in lower-case hex, 64 digits.
  std::string digest(const char* name) const;
  std::vector<double> numbers(const char* name) const;
  // A list of tokens, each from 0 to 2^31 − 1.
  std::vector<std::int32_t> token_list(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  // Array `name`, I32 [n].
  std::vector<std::int32_t> i32_array(const char* name) const;
  // Array `name`, U8 [n].
  std::vector<std::uint8_t> u8_array(const char* name) const;
};

// A member of `object`; `where` names the object in errors. All throw RequestError("BadInput").
double number_of(const Json& object, const char* where, const char* name);
std::int64_t whole_of(const Json& object, const char* where, const char* name, std::int64_t least, std::int64_t most);
std::string text_of(const Json& object, const char* where, const char* name);
// Also throws if `object` is not an object.
void refuse_unknown_keys(const Json& object, const char* where, const std::vector<std::string_view>& known);

}  // namespace longhaul
