#include "serve/protocol/request.h"

#include <algorithm>
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

template <class T>
std::vector<T> array_values(const Frame& frame, const char* name, DType dtype, const char* dtype_text) {
  const ArrayView* view = frame.array(name);
  if (view == nullptr || view->dtype != dtype || view->shape.size() != 1) {
    refuse(std::string("needs an array ") + name + ", " + dtype_text + " [n]");
  }
  std::vector<T> values(static_cast<std::size_t>(view->shape[0]));
  if (!values.empty()) std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  return values;
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

std::string text_of(const Json& object, const char* where, const char* name) {
  const std::string* value = member_of(object, where, name).string();
  if (value == nullptr) refuse(path_of(where, name) + " must be a string");
  return *value;
}

void refuse_unknown_keys(const Json& object, const char* where, const std::vector<std::string_view>& known) {
  if (object.object() == nullptr) refuse(std::string(where) + " must be an object");
  for (const JsonMember& member : *object.object()) {
    if (std::find(known.begin(), known.end(), member.name) != known.end()) continue;
    std::string list;
    for (const std::string_view key : known) list += (list.empty() ? "" : ", ") + std::string(key);
    refuse(path_of(where, member.name.c_str()) + " is not known; " + where + " has " + list);
  }
}

const Json& Request::field(const char* name) const { return member_of(frame.header, "", name); }

std::string Request::text(const char* name) const { return text_of(frame.header, "", name); }

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
    refuse(std::string(name) + " must be a digest: 64 digits of lower-case hex");
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

std::vector<std::int32_t> Request::token_list(const char* name) const {
  std::vector<std::int32_t> tokens;
  for (const double value : numbers(name)) {
    if (value != std::floor(value) || value < 0 || value > 0x7FFFFFFF) refuse(std::string(name) + " must be a list of tokens");
    tokens.push_back(static_cast<std::int32_t>(value));
  }
  return tokens;
}

std::vector<std::string> Request::texts(const char* name) const {
  const Json::Array* items = field(name).array();
  if (items == nullptr) refuse(std::string(name) + " must be a list of strings");
  std::vector<std::string> values;
  for (const Json& item : *items) {
    if (item.string() == nullptr) refuse(std::string(name) + " must be a list of strings");
    values.push_back(*item.string());
  }
  return values;
}

std::vector<std::int32_t> Request::i32_array(const char* name) const {
  return array_values<std::int32_t>(frame, name, DType::i32, "I32");
}

std::vector<std::uint8_t> Request::u8_array(const char* name) const {
  return array_values<std::uint8_t>(frame, name, DType::u8, "U8");
}

}  // namespace longhaul
