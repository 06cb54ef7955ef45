#include "wire/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace longhaul {
namespace {

constexpr int max_depth = 64;

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

class Parser {
 public:
  Parser(std::string_view text, std::string& error) : text_(text), error_(error) {}

  std::optional<Json> run() {
    Json value;
    skip_space();
    if (!parse_value(value, 0)) return std::nullopt;
    skip_space();
    if (at_ != text_.size()) {
      fail("text after the value");
      return std::nullopt;
    }
    return value;
  }

 private:
  bool fail(const char* what) {
    if (error_.empty()) error_ = std::string(what) + " at byte " + std::to_string(at_);
    return false;
  }

  void skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') break;
      ++at_;
    }
  }

  bool take(char expected) {
    if (at_ >= text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }

  bool parse_value(Json& out, int depth) {
    if (depth > max_depth) return fail("nested deeper than 64");
    if (at_ >= text_.size()) return fail("unexpected end");
    switch (text_[at_]) {
      case '{': return parse_object(out, depth);
      case '[': return parse_array(out, depth);
      case '"': {
        std::string text;
        if (!parse_string(text)) return false;
        out = Json(std::move(text));
        return true;
      }
      case 't': return parse_word("true", Json(true), out);
      case 'f': return parse_word("false", Json(false), out);
      case 'n': return parse_word("null", Json(nullptr), out);
      default: return parse_number(out);
    }
  }

  bool parse_word(std::string_view word, Json value, Json& out) {
    if (text_.substr(at_, word.size()) != word) return fail("unknown word");
    at_ += word.size();
    out = std::move(value);
    return true;
  }

  bool parse_number(Json& out) {
    const std::size_t start = at_;
    take('-');
    if (!take('0')) {
      if (!skip_digits()) return fail("expected a value");
    }
    if (take('.') && !skip_digits()) return fail("expected a digit after the point");
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (!take('+')) take('-');
      if (!skip_digits()) return fail("expected a digit in the exponent");
    }
    double value = 0;
    const auto result = std::from_chars(text_.data() + start, text_.data() + at_, value);
    // from_chars leaves `value` unchanged if the number is out of a double's range.
    if (result.ec != std::errc()) return fail("number out of range");
    out = Json(value);
    return true;
  }

  bool skip_digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > start;
  }

  bool parse_hex4(std::uint32_t& code) {
    if (text_.size() - at_ < 4) return fail("short \\u escape");
    const char* first = text_.data() + at_;
    const auto result = std::from_chars(first, first + 4, code, 16);
    if (result.ec != std::errc() || result.ptr != first + 4) return fail("broken \\u escape");
    at_ += 4;
    return true;
  }

  bool parse_escape(std::string& out) {
    if (at_ >= text_.size()) return fail("unexpected end in a string");
    const char c = text_[at_++];
    switch (c) {
      case '"': out += '"'; return true;
      case '\\': out += '\\'; return true;
      case '/': out += '/'; return true;
      case 'b': out += '\b'; return true;
      case 'f': out += '\f'; return true;
      case 'n': out += '\n'; return true;
      case 'r': out += '\r'; return true;
      case 't': out += '\t'; return true;
      case 'u': break;
      default: return fail("unknown escape");
    }
    std::uint32_t code = 0;
    if (!parse_hex4(code)) return false;
    if (code >= 0xDC00 && code < 0xE000) return fail("low surrogate alone");
    if (code >= 0xD800 && code < 0xDC00) {
      std::uint32_t low = 0;
      if (!take('\\') || !take('u')) return fail("high surrogate alone");
      if (!parse_hex4(low)) return false;
      if (low < 0xDC00 || low >= 0xE000) return fail("high surrogate alone");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, code);
    return true;
  }

  bool parse_string(std::string& out) {
    ++at_;
    while (true) {
      const std::size_t start = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20) {
        ++at_;
      }
      out.append(text_.substr(start, at_ - start));
      if (at_ >= text_.size()) return fail("unexpected end in a string");
      if (text_[at_] == '"') {
        ++at_;
        return true;
      }
      if (text_[at_] != '\\') return fail("control character in a string");
      ++at_;
      if (!parse_escape(out)) return false;
    }
  }

  bool parse_array(Json& out, int depth) {
    ++at_;
    Json::Array items;
    skip_space();
    if (!take(']')) {
      do {
        skip_space();
        if (!parse_value(items.emplace_back(), depth + 1)) return false;
        skip_space();
      } while (take(','));
      if (!take(']')) return fail("expected , or ]");
    }
    out = Json(std::move(items));
    return true;
  }

  bool parse_object(Json& out, int depth) {
    ++at_;
    Json::Object members;
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        if (at_ >= text_.size() || text_[at_] != '"') return fail("expected a key");
        JsonMember member;
        if (!parse_string(member.name)) return false;
        skip_space();
        if (!take(':')) return fail("expected :");
        skip_space();
        if (!parse_value(member.value, depth + 1)) return false;
        members.push_back(std::move(member));
        skip_space();
      } while (take(','));
      if (!take('}')) return fail("expected , or }");
    }
    if (has_repeated_key(members)) return fail("repeated key in the object that ends");
    out = Json(std::move(members));
    return true;
  }

  static bool has_repeated_key(const Json::Object& members) {
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const JsonMember& member : members) names.push_back(member.name);
    std::sort(names.begin(), names.end());
    return std::adjacent_find(names.begin(), names.end()) != names.end();
  }

  std::string_view text_;
  std::string& error_;
  std::size_t at_ = 0;
};

void write_string(std::string_view text, std::string& out) {
  static constexpr char hex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (byte < 0x20) {
          out += "\\u00";
          out += hex[byte >> 4];
          out += hex[byte & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// ECMAScript's Number::toString: the shortest digits that read back the same; no exponent between 1e-7 and 1e21.
void write_number(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  if (value == 0) {
    out += '0';
    return;
  }
  if (std::fabs(value) < 9.0e15 && value == std::trunc(value)) {
    char text[24];
    const auto end = std::to_chars(text, text + sizeof text, static_cast<std::int64_t>(value)).ptr;
    out.append(text, end);
    return;
  }
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, std::fabs(value), std::chars_format::scientific).ptr;
  const std::string_view whole(text, static_cast<std::size_t>(end - text));
  const std::size_t e = whole.find('e');
  std::string digits(1, whole[0]);
  if (e > 2) digits.append(whole.substr(2, e - 2));
  int exponent = 0;
  const std::size_t skip = whole[e + 1] == '+' ? 2 : 1;
  std::from_chars(whole.data() + e + skip, whole.data() + whole.size(), exponent);
  const int count = static_cast<int>(digits.size());
  const int point = exponent + 1;  // position of the decimal point among the digits
  if (value < 0) out += '-';
  if (point > 0 && point <= 21) {
    if (count <= point) {
      out += digits;
      out.append(static_cast<std::size_t>(point - count), '0');
    } else {
      out += digits.substr(0, static_cast<std::size_t>(point));
      out += '.';
      out += digits.substr(static_cast<std::size_t>(point));
    }
  } else if (point > -6 && point <= 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-point), '0');
    out += digits;
  } else {
    out += digits[0];
    if (count > 1) {
      out += '.';
      out += digits.substr(1);
    }
    out += 'e';
    out += exponent < 0 ? '-' : '+';
    out += std::to_string(std::abs(exponent));
  }
}

void write_value(const Json& value, KeyOrder order, std::string& out) {
  if (value.is_null()) {
    out += "null";
  } else if (const bool* flag = value.boolean()) {
    out += *flag ? "true" : "false";
  } else if (const double* number = value.number()) {
    write_number(*number, out);
  } else if (const std::string* text = value.string()) {
    write_string(*text, out);
  } else if (const Json::Array* items = value.array()) {
    out += '[';
    for (std::size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out += ',';
      write_value((*items)[i], order, out);
    }
    out += ']';
  } else {
    const Json::Object& members = *value.object();
    std::vector<const JsonMember*> sequence;
    sequence.reserve(members.size());
    for (const JsonMember& member : members) sequence.push_back(&member);
    if (order == KeyOrder::sorted) {
      // UTF-8 byte order is code point order. RFC 8785 sorts by UTF-16, which is the same for our ASCII keys.
      std::sort(sequence.begin(), sequence.end(),
                [](const JsonMember* a, const JsonMember* b) { return a->name < b->name; });
    }
    out += '{';
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      if (i > 0) out += ',';
      write_string(sequence[i]->name, out);
      out += ':';
      write_value(sequence[i]->value, order, out);
    }
    out += '}';
  }
}

}  // namespace

Json::Json() : value_(nullptr) {}
Json::Json(std::nullptr_t) : value_(nullptr) {}
Json::Json(bool flag) : value_(flag) {}
Json::Json(double number) : value_(number) {}
Json::Json(int number) : value_(static_cast<double>(number)) {}
Json::Json(std::int64_t number) : value_(static_cast<double>(number)) {}
Json::Json(std::uint64_t number) : value_(static_cast<double>(number)) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(Array items) : value_(std::move(items)) {}
Json::Json(Object members) : value_(std::move(members)) {}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

const Json* Json::find(std::string_view name) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

void Json::set(std::string name, Json value) {
  if (object() == nullptr) value_ = Object{};
  Object& members = std::get<Object>(value_);
  for (JsonMember& member : members) {
    if (member.name == name) {
      member.value = std::move(value);
      return;
    }
  }
  members.push_back({std::move(name), std::move(value)});
}

std::optional<Json> parse_json(std::string_view text, std::string& error) {
  error.clear();
  if (!is_utf8(text)) {
    error = "not UTF-8";
    return std::nullopt;
  }
  return Parser(text, error).run();
}

std::string write_json(const Json& value, KeyOrder order) {
  std::string out;
  write_value(value, order, out);
  return out;
}

bool is_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    std::size_t length = 0;
    std::uint32_t code = 0;
    std::uint32_t least = 0;
    if ((lead & 0xE0) == 0xC0) {
      length = 2, code = lead & 0x1F, least = 0x80;
    } else if ((lead & 0xF0) == 0xE0) {
      length = 3, code = lead & 0x0F, least = 0x800;
    } else if ((lead & 0xF8) == 0xF0) {
      length = 4, code = lead & 0x07, least = 0x10000;
    } else {
      return false;
    }
    if (text.size() - i < length) return false;
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      code = (code << 6) | (next & 0x3F);
    }
    if (code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += length;
  }
  return true;
}

}  // namespace longhaul
