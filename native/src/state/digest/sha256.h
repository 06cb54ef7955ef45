// SHA-256 (FIPS 180-4). Uses the processor's SHA instructions if it has them.
// defines: Sha256, Sha256Digest, to_hex, sha256_hex
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longhaul {

using Sha256Digest = std::array<std::uint8_t, 32>;

enum class Sha256Code { best, portable };

class Sha256 {
 public:
  // `portable` is for tests, which compare both paths with the same vectors.
  explicit Sha256(Sha256Code code = Sha256Code::best);

  void add(const void* data, std::size_t size);
  void add(std::string_view text) { add(text.data(), text.size()); }

  // Returns the digest and ends the message; the object must not be used again.
  Sha256Digest finish();

 private:
  void compress(const std::uint8_t* blocks, std::size_t count);

  std::array<std::uint32_t, 8> state_;
  std::array<std::uint8_t, 64> block_{};
  std::size_t held_ = 0;
  std::uint64_t total_ = 0;
  bool with_instructions_;
};

// True if `Sha256Code::best` uses the SHA instructions.
bool has_sha_instructions();

std::string to_hex(std::span<const std::uint8_t> bytes);

std::string sha256_hex(std::string_view text);

}  // namespace longhaul
