// JSON for the protocol and file headers: a strict parser and a canonical writer.
// defines: Json, parse_json, write_json, is_utf8
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace longhaul {

struct JsonMember;

class Json {
 public:
  // A derived type, not std::vector itself: libstdc++ 12 assumes that a variant of only standard containers is never
  // valueless, and then destroys a value that a failed copy never built.
  struct Array : std::vector<Json> {
    using std::vector<Json>::vector;
  };
  using Object = std::vector<JsonMember>;  // source order; the parser refuses a repeated key

  Json();
  Json(std::nullptr_t);
  Json(bool flag);
  Json(double number);
  Json(int number);
  Json(std::int64_t number);
  Json(std::uint64_t number);
  Json(const char* text);
  Json(std::string text);
  Json(Array items);
  Json(Object members);
  // In json.cc, as are the constructors: inline, their code would be repeated wherever a value is built or destroyed.
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const double* number() const { return std::get_if<double>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

  // The member of that name; null if this is not an object or has no such member.
  const Json* find(std::string_view name) const;
  // Sets or replaces a member; a value that is not an object becomes one.
  void set(std::string name, Json value);

 private:
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value_;
};

struct JsonMember {
  std::string name;
  Json value;
};

// Parses one JSON text. On failure returns nothing, and `error` says what is wrong at which byte.
std::optional<Json> parse_json(std::string_view text, std::string& error);

enum class KeyOrder { kept, sorted };

// Compact text. Numbers are written as ECMAScript writes them, so with sorted keys this is RFC 8785 for our data.
std::string write_json(const Json& value, KeyOrder order = KeyOrder::kept);

// True for well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace longhaul
