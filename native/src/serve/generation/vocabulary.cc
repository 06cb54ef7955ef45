#include "serve/generation/vocabulary.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace longhaul {

Vocabulary::Vocabulary(std::vector<std::uint8_t> bytes, std::span<const std::int32_t> lengths) : bytes_(std::move(bytes)) {
  ends_.reserve(lengths.size());
  std::size_t end = 0;
  for (std::size_t token = 0; token < lengths.size(); ++token) {
    if (lengths[token] < 0 || lengths[token] > most_token_bytes) {
      throw std::invalid_argument("lengths[" + std::to_string(token) + "] is " + std::to_string(lengths[token]) +
                                  "; a token has 0 to " + std::to_string(most_token_bytes) + " bytes");
    }
    end += static_cast<std::size_t>(lengths[token]);
    ends_.push_back(end);
  }
  if (end != bytes_.size()) {
    throw std::invalid_argument("lengths add up to " + std::to_string(end) + ", but bytes has " +
                                std::to_string(bytes_.size()));
  }
}

std::span<const std::uint8_t> Vocabulary::bytes_of(std::int32_t token) const {
  const auto index = static_cast<std::size_t>(token);
  if (token < 0 || index >= ends_.size()) return {};
  const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::span<const std::uint8_t>(bytes_).subspan(begin, ends_[index] - begin);
}

}  // namespace longhaul
