// Reads the safetensors files that native/tools/make_fixtures.py and native/tools/fixture_losses.py wrote. They are committed with the
// tests, so a broken file simply fails a test; the engine's own reader (state/safetensors.h) checks everything.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/check.h"

namespace longhaul::test {

/// The scalars of a JSON text, by path: {"a": [{"b": 2}]} has "a/0/b".
class FlatJson {
 public:
  FlatJson() = default;
  explicit FlatJson(std::string_view text) : rest_(text) {
    read_value("");
    rest_ = {};
  }

  bool has(const std::string& path) const { return values_.contains(path); }
  /// Whether any scalar lies below the path.
  bool has_below(const std::string& path) const {
    const auto next = values_.lower_bound(path + "/");
    return next != values_.end() && next->first.starts_with(path + "/");
  }
  const std::string& text(const std::string& path) const {
    check(has(path), "fixture: there is no " + path);
    return values_.at(path);
  }
  double number(const std::string& path) const { return std::stod(text(path)); }
  double number_or(const std::string& path, double otherwise) const { return has(path) ? number(path) : otherwise; }
  int integer(const std::string& path) const { return std::stoi(text(path)); }
  bool flag(const std::string& path) const { return text(path) == "true"; }

 private:
  char peek() {
    while (!rest_.empty() && std::strchr(" \n\t\r", rest_.front()) != nullptr) rest_.remove_prefix(1);
    check(!rest_.empty(), "fixture: JSON ends early");
    return rest_.front();
  }
  char take() {
    const char c = peek();
    rest_.remove_prefix(1);
    return c;
  }

  std::string read_string() {
    std::string text;
    check(take() == '"', "fixture: JSON string expected");
    while (true) {
      check(rest_.size() >= 2, "fixture: JSON string does not end");
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return text;
      if (c == '\\') {
        c = rest_.front();
        rest_.remove_prefix(1);
        check(c == '"' || c == '\\' || c == '/' || c == 'n', std::string("fixture: JSON escape \\") + c);
        if (c == 'n') c = '\n';
      }
      text += c;
    }
  }

  void read_value(const std::string& path) {
    const char c = peek();
    const std::string prefix = path.empty() ? "" : path + "/";
    if (c == '"') {
      values_[path] = read_string();
    } else if (c == '{' || c == '[') {
      const char end = c == '{' ? '}' : ']';
      take();
      for (int i = 0; peek() != end; ++i) {
        if (i > 0) check(take() == ',', "fixture: JSON comma expected");
        std::string key = std::to_string(i);
        if (c == '{') {
          key = read_string();
          check(take() == ':', "fixture: JSON colon expected");
        }
        read_value(prefix + key);
      }
      take();
    } else {
      std::string scalar;
      while (!rest_.empty() && std::strchr(",]} \n", rest_.front()) == nullptr) {
        scalar += rest_.front();
        rest_.remove_prefix(1);
      }
      values_[path] = scalar;
    }
  }

  std::string_view rest_;
  std::map<std::string, std::string> values_;
};

class FixtureFile {
 public:
  /// `name` has no folder and no extension.
  explicit FixtureFile(const std::string& name) : name_(name) {
    std::ifstream file(FIXTURE_DIRECTORY "/" + name + ".safetensors", std::ios::binary);
    check(bool(file), "cannot read fixture " + name);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t header = 0;
    check(bytes_.size() >= sizeof header, "fixture " + name + " has no header");
    std::memcpy(&header, bytes_.data(), sizeof header);
    check(header <= bytes_.size() - sizeof header, "fixture " + name + " ends inside its header");
    header_ = FlatJson(std::string_view(bytes_).substr(sizeof header, header));
    data_begin_ = sizeof header + header;
  }

  /// The metadata entry `key`, which is JSON text.
  FlatJson metadata(const std::string& key) const { return FlatJson(header_.text("__metadata__/" + key)); }

  bool has(const std::string& tensor) const { return header_.has(tensor + "/dtype"); }
  std::vector<float> floats(const std::string& tensor) const { return values<float>(tensor, "F32"); }
  /// bf16 numbers as fp32.
  std::vector<float> halves(const std::string& tensor) const {
    std::vector<float> out;
    for (const uint16_t high : values<uint16_t>(tensor, "BF16")) {
      const uint32_t bits = uint32_t(high) << 16;
      std::memcpy(&out.emplace_back(), &bits, sizeof bits);
    }
    return out;
  }
  std::vector<double> doubles(const std::string& tensor) const { return values<double>(tensor, "F64"); }
  std::vector<int32_t> integers(const std::string& tensor) const { return values<int32_t>(tensor, "I32"); }

 private:
  template <class T>
  std::vector<T> values(const std::string& tensor, const std::string& dtype) const {
    check(has(tensor), "fixture " + name_ + " has no tensor " + tensor);
    check_equal(header_.text(tensor + "/dtype"), dtype, "fixture " + name_ + ": dtype of " + tensor);
    const size_t begin = std::stoull(header_.text(tensor + "/data_offsets/0"));
    const size_t end = std::stoull(header_.text(tensor + "/data_offsets/1"));
    check(begin <= end && end <= bytes_.size() - data_begin_, "fixture " + name_ + " ends inside " + tensor);
    std::vector<T> out((end - begin) / sizeof(T));
    std::memcpy(out.data(), bytes_.data() + data_begin_ + begin, out.size() * sizeof(T));
    return out;
  }

  std::string name_, bytes_;
  FlatJson header_;
  size_t data_begin_ = 0;
};

}  // namespace longhaul::test
