// The bytes of each token, as the peer's tokenizer gives them. Stop strings are searched in these bytes.
// defines: Vocabulary
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

class Vocabulary {
 public:
  static constexpr std::int32_t most_token_bytes = 1 << 16;

  // `bytes` of all tokens, one after another; `lengths` [tokens]. Throws std::invalid_argument that names the entry if a length is negative
  // or over most_token_bytes, or if the lengths do not add up to the number of bytes.
  Vocabulary(std::vector<std::uint8_t> bytes, std::span<const std::int32_t> lengths);

  std::size_t size() const { return ends_.size(); }

  // Empty for a token past the vocabulary's end: a model may have more embedding rows than its tokenizer has tokens.
  std::span<const std::uint8_t> bytes_of(std::int32_t token) const;

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<std::size_t> ends_;  // where each token's bytes begin in `bytes_`
};

}  // namespace longhaul
