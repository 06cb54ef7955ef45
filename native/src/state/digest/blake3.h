// BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn: "BLAKE3, one function, fast everywhere", 2020), in hash mode: no keys, 32 bytes of
// output. It is a tree over chunks of 1 KiB, so 16 (AVX-512) or 8 (AVX2) chunks are compressed side by side.
// defines: Blake3, Blake3Digest, Blake3Code, blake3_supported, blake3
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace longhaul {

using Blake3Digest = std::array<std::uint8_t, 32>;

// All except `best` are for tests, which compare every path with the same vectors.
enum class Blake3Code { best, avx512, avx2, portable };

// Whether this machine has the instructions.
bool blake3_supported(Blake3Code code);

class Blake3 {
 public:
  using Words = std::array<std::uint32_t, 8>;

  // If this machine does not support `code`, uses `portable`.
  explicit Blake3(Blake3Code code = Blake3Code::best);

  // Adds a piece of any size; large pieces are fast.
  void add(const void* data, std::size_t size);
  void add(std::string_view text) { add(text.data(), text.size()); }

  // Returns the digest and ends the message; the object must not be used again.
  Blake3Digest finish();

 private:
  void add_to_chunk(const std::uint8_t* data, std::size_t size);
  std::size_t chunk_bytes() const { return std::size_t{blocks_} * 64 + held_; }
  void push(const Words& value, std::uint64_t chunks_before);
  void merge(std::uint64_t chunks);

  Blake3Code code_;
  // The current chunk: its chaining value, and the block that is not compressed yet because it may be the message's last one.
  Words chunk_;
  std::array<std::uint8_t, 64> block_{};
  std::uint32_t blocks_ = 0;
  std::uint32_t held_ = 0;
  std::uint64_t chunks_ = 0;  // whole chunks before the current one
  // Roots of the subtrees before the current chunk, the largest first.
  std::array<Words, 54> subtrees_{};
  std::size_t depth_ = 0;
};

// Digest of a whole message.
Blake3Digest blake3(std::span<const std::byte> message, Blake3Code code = Blake3Code::best);

}  // namespace longhaul
