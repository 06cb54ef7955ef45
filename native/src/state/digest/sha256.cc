#include "state/digest/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace longhaul {
namespace {

alignas(64) constexpr std::uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress_portable(std::uint32_t* state, const std::uint8_t* blocks, std::size_t count) {
  for (; count > 0; --count, blocks += 64) {
    std::uint32_t w[64];
    for (int t = 0; t < 16; ++t) {
      w[t] = std::uint32_t{blocks[4 * t]} << 24 | std::uint32_t{blocks[4 * t + 1]} << 16 |
             std::uint32_t{blocks[4 * t + 2]} << 8 | std::uint32_t{blocks[4 * t + 3]};
    }
    for (int t = 16; t < 64; ++t) {
      const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    std::uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 64; ++t) {
      const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t choose = (e & f) ^ (~e & g);
      const std::uint32_t t1 = h + s1 + choose + round_constants[t] + w[t];
      const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
      const std::uint32_t t2 = s0 + majority;
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#if defined(__x86_64__)
// The SHA instructions keep the state as (ABEF, CDGH) and do two rounds each.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha_ni(std::uint32_t* state, const std::uint8_t* message, std::size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));       // DCBA
  __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));  // HGFE
  low = _mm_shuffle_epi32(low, 0xB1);                                          // CDAB
  high = _mm_shuffle_epi32(high, 0x1B);                                        // EFGH
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xF0);

  for (std::size_t block = 0; block < count; ++block) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(message + 64 * block + 16 * i)), big_endian);
    }
#pragma GCC unroll 16
    for (int group = 0; group < 16; ++group) {
      const __m128i current = w[group & 3];
      const __m128i sum = _mm_add_epi32(current, _mm_load_si128(reinterpret_cast<const __m128i*>(round_constants + 4 * group)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      if (group < 12) {
        // Words of group + 4: w[t] = σ1(w[t−2]) + w[t−7] + σ0(w[t−15]) + w[t−16].
        const __m128i next1 = w[(group + 1) & 3], next2 = w[(group + 2) & 3], next3 = w[(group + 3) & 3];
        __m128i words = _mm_sha256msg1_epu32(current, next1);
        words = _mm_add_epi32(words, _mm_alignr_epi8(next3, next2, 4));
        w[group & 3] = _mm_sha256msg2_epu32(words, next3);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }

  low = _mm_shuffle_epi32(abef, 0x1B);   // FEBA
  high = _mm_shuffle_epi32(cdgh, 0xB1);  // DCHG
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(low, high, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(high, low, 8));
}

bool detect_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (b & (1u << 29)) != 0 && __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3");
}
#endif

}  // namespace

bool has_sha_instructions() {
#if defined(__x86_64__)
  static const bool present = detect_sha_instructions();
  return present;
#else
  return false;
#endif
}

Sha256::Sha256(Sha256Code code)
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      with_instructions_(code == Sha256Code::best && has_sha_instructions()) {}

void Sha256::compress(const std::uint8_t* blocks, std::size_t count) {
#if defined(__x86_64__)
  if (with_instructions_) return compress_sha_ni(state_.data(), blocks, count);
#endif
  compress_portable(state_.data(), blocks, count);
}

void Sha256::add(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  total_ += size;
  if (held_ > 0) {
    const std::size_t part = std::min(size, block_.size() - held_);
    std::memcpy(block_.data() + held_, bytes, part);
    held_ += part, bytes += part, size -= part;
    if (held_ < block_.size()) return;
    compress(block_.data(), 1);
    held_ = 0;
  }
  const std::size_t whole = size / 64;
  if (whole > 0) compress(bytes, whole);
  const std::size_t rest = size - whole * 64;
  if (rest > 0) std::memcpy(block_.data(), bytes + whole * 64, rest);
  held_ = rest;
}

Sha256Digest Sha256::finish() {
  const std::uint64_t bits = total_ * 8;
  std::uint8_t tail[128] = {};
  std::memcpy(tail, block_.data(), held_);
  tail[held_] = 0x80;
  const std::size_t size = held_ < 56 ? 64 : 128;
  for (int i = 0; i < 8; ++i) tail[size - 1 - i] = static_cast<std::uint8_t>(bits >> (8 * i));
  compress(tail, size / 64);
  Sha256Digest digest;
  for (int i = 0; i < 32; ++i) digest[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return to_hex(hash.finish());
}

}  // namespace longhaul
