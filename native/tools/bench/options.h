// Options of a benchmark: `--name value` pairs. Each must be known, and each must be used.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::bench {

class Options {
 public:
  Options(int count, char** arguments) {
    if (count % 2 != 0) throw std::invalid_argument(std::string(arguments[count - 1]) + " has no value");
    for (int i = 0; i < count; i += 2) values_.emplace_back(arguments[i], arguments[i + 1]);
  }

  std::string text(const std::string& name, const std::string& otherwise) {
    for (auto& [key, value] : values_)
      if (key == "--" + name) {
        std::string taken = std::move(value);
        std::erase_if(values_, [&](const auto& pair) { return pair.first == "--" + name; });
        return taken;
      }
    return otherwise;
  }

  double number(const std::string& name, double otherwise, double least) {
    const std::string given = text(name, "");
    if (given.empty()) return otherwise;
    char* end = nullptr;
    const double value = std::strtod(given.c_str(), &end);
    if (*end != 0 || !(value >= least))
      throw std::invalid_argument("--" + name + " is \"" + given + "\"; it must be a number from " + std::to_string(least) + " on");
    return value;
  }
  int whole(const std::string& name, int otherwise, int least = 1) { return int(number(name, otherwise, least)); }

  /// Call it after reading all options: throws if one was not used.
  void done() const {
    if (!values_.empty()) throw std::invalid_argument("unknown option " + values_.front().first);
  }

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace longhaul::bench
