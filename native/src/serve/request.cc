#include "serve/request.h"

#include <cmath>
#include <cstring>

namespace longhaul {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw RequestError("BadInput", message); }

std::string path_of(const char* where, const char* name) {
  return where[0] == '\0' ? std::string(name) : std::string(where) + "." + name;
}

const Json& member_of(const Json& object, const char* where, const char* name) {
  const Json* value = object.find(name);
  if (value == nullptr) refuse(path_of(where, name) + " is missing");
  return *value;
}

}  // namespace

double number_of(const Json& object, const char* where, const char* name) {
  const double* value = member_of(object, where, name).number();
  if (value == nullptr) refuse(path_of(where, name) + " must be a number");
  return *value;
}

std::int64_t whole_of(const Json& object, const char* where, const char* name, std::int64_t least, std::int64_t most) {
  const double value = number_of(object, where, name);
  if (value != std::floor(value) || value < static_cast<double>(least) || value > static_cast<double>(most)) {
    refuse(path_of(where, name) + " must be a whole number from " + std::to_string(least) + " to " +
           std::to_string(most));
  }
  return static_cast<std::int64_t>(value);
}

const Json& Request::field(const char* name) const { return member_of(frame.header, "", name); }

std::string Request::text(const char* name) const {
  const std::string* value = field(name).string();
  if (value == nullptr) refuse(std::string(name) + " must be a string");
  return *value;
}

double Request::number(const char* name) const { return number_of(frame.header, "", name); }

std::int64_t Request::whole(const char* name, std::int64_t least, std::int64_t most) const {
  return whole_of(frame.header, "", name, least, most);
}

bool Request::flag(const char* name) const {
  const bool* value = field(name).boolean();
  if (value == nullptr) refuse(std::string(name) + " must be true or false");
  return *value;
}

std::string Request::digest(const char* name) const {
  std::string value = text(name);
  if (value.size() != 64 || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuse(std::string(name) + " must be a sha256 in lower-case hex");
  }
  return value;
}

std::vector<double> Request::numbers(const char* name) const {
  const Json::Array* items = field(name).array();
  if (items == nullptr) refuse(std::string(name) + " must be a list of numbers");
  std::vector<double> values;
  for (const Json& item : *items) {
    if (item.number() == nullptr) refuse(std::string(name) + " must be a list of numbers");
    values.push_back(*item.number());
  }
  return values;
}

std::vector<std::int32_t> Request::tokens() const {
  const ArrayView* view = frame.array("tokens");
  if (view == nullptr || view->dtype != DType::i32 || view->shape.size() != 1) refuse("needs an array tokens, I32 [n]");
  std::vector<std::int32_t> values(static_cast<std::size_t>(view->shape[0]));
  if (!values.empty()) std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  return values;
}

}  // namespace longhaul
