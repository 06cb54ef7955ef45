#include "serve/generation/stop_strings.h"

#include <stdexcept>

namespace longhaul {

StopStrings::StopStrings(std::span<const std::string> strings) {
  if (strings.size() > most_strings) {
    throw std::invalid_argument(std::to_string(strings.size()) + " stop_strings; at most " + std::to_string(most_strings) +
                                " are allowed");
  }
  strings_.reserve(strings.size());
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::string& text = strings[i];
    if (text.empty() || text.size() > most_bytes) {
      throw std::invalid_argument("stop_strings[" + std::to_string(i) + "] has " + std::to_string(text.size()) +
                                  " bytes; it must have 1 to " + std::to_string(most_bytes));
    }
    Search search{text, std::vector<std::uint16_t>(text.size(), 0)};
    std::size_t border = 0;
    for (std::size_t at = 1; at < text.size(); ++at) {
      while (border > 0 && text[at] != text[border]) border = search.borders[border - 1];
      if (text[at] == text[border]) ++border;
      search.borders[at] = static_cast<std::uint16_t>(border);
    }
    strings_.push_back(std::move(search));
  }
}

bool StopStrings::advance(std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) {
    for (Search& search : strings_) {
      if (advance(search, byte)) return true;
    }
  }
  return false;
}

bool StopStrings::advance(Search& search, std::uint8_t byte) {
  const auto next = static_cast<char>(byte);
  while (search.matched > 0 && search.text[search.matched] != next) search.matched = search.borders[search.matched - 1];
  if (search.text[search.matched] == next) ++search.matched;
  return search.matched == search.text.size();
}

}  // namespace longhaul
