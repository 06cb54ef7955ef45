// Stop strings, searched as a generation proceeds: in the bytes of its sampled tokens, across token borders, reading each byte once (Knuth,
// Morris & Pratt 1977). A generation ends with whole tokens: the token in which a stop string ends is the last one, and is kept.
// defines: StopStrings
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace longhaul {

class StopStrings {
 public:
  static constexpr std::size_t most_strings = 64;
  static constexpr std::size_t most_bytes = 1024;  // of one string

  StopStrings() = default;
  // Throws std::invalid_argument if there are more than most_strings, or, naming the index, if a string is empty or too long.
  explicit StopStrings(std::span<const std::string> strings);

  bool empty() const { return strings_.empty(); }

  // Takes the bytes of one more token; returns true if a stop string ends in these bytes. Do not call it again after that.
  bool advance(std::span<const std::uint8_t> bytes);

 private:
  struct Search {
    std::string text;
    // borders[i]: length of the longest proper prefix of text[0, i] that is also its suffix.
    std::vector<std::uint16_t> borders;
    std::size_t matched = 0;
  };
  static bool advance(Search& search, std::uint8_t byte);

  std::vector<Search> strings_;
};

}  // namespace longhaul
