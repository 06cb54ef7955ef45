#include "state/digest/blake3.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace longhaul {
namespace {

using Words = Blake3::Words;

constexpr std::size_t block_bytes = 64;
constexpr std::size_t chunk_size = 1024;
constexpr int chunk_blocks = chunk_size / block_bytes;

// Flags that say which kind of block is compressed.
constexpr std::uint32_t chunk_start_flag = 1, chunk_end_flag = 2, parent_flag = 4, root_flag = 8;

constexpr Words initial_value = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// For each round: the word of the block that each of the sixteen additions takes. Every round permutes the order of the previous round.
constexpr auto message_schedule = [] {
  constexpr std::uint8_t permutation[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
  std::array<std::array<std::uint8_t, 16>, 7> schedule{};
  for (std::uint8_t i = 0; i < 16; ++i) schedule[0][i] = i;
  for (int round = 1; round < 7; ++round) {
    for (int i = 0; i < 16; ++i) schedule[round][i] = schedule[round - 1][permutation[i]];
  }
  return schedule;
}();

// Messages of equal length, `stride` bytes apart.
struct LaneInput {
  const std::uint8_t* data;
  std::size_t stride;
  int blocks;
  std::uint64_t counter;  // of the first message; if `counts`, each further message adds 1
  bool counts;
  std::uint32_t flags, first_flag, last_flag;
};

// The chaining value of one block.
Words compress(const Words& chaining, const std::uint8_t* block, std::uint32_t bytes, std::uint64_t counter,
               std::uint32_t flags) {
  std::uint32_t m[16];
  std::memcpy(m, block, sizeof m);
  std::uint32_t v[16] = {chaining[0], chaining[1], chaining[2], chaining[3], chaining[4], chaining[5], chaining[6], chaining[7],
                         initial_value[0], initial_value[1], initial_value[2], initial_value[3], std::uint32_t(counter),
                         std::uint32_t(counter >> 32), bytes, flags};
  const auto mix = [&v](int a, int b, int c, int d, std::uint32_t x, std::uint32_t y) {
    v[a] = v[a] + v[b] + x;
    v[d] = std::rotr(v[d] ^ v[a], 16);
    v[c] = v[c] + v[d];
    v[b] = std::rotr(v[b] ^ v[c], 12);
    v[a] = v[a] + v[b] + y;
    v[d] = std::rotr(v[d] ^ v[a], 8);
    v[c] = v[c] + v[d];
    v[b] = std::rotr(v[b] ^ v[c], 7);
  };
  for (const auto& s : message_schedule) {
    mix(0, 4, 8, 12, m[s[0]], m[s[1]]);
    mix(1, 5, 9, 13, m[s[2]], m[s[3]]);
    mix(2, 6, 10, 14, m[s[4]], m[s[5]]);
    mix(3, 7, 11, 15, m[s[6]], m[s[7]]);
    mix(0, 5, 10, 15, m[s[8]], m[s[9]]);
    mix(1, 6, 11, 12, m[s[10]], m[s[11]]);
    mix(2, 7, 8, 13, m[s[12]], m[s[13]]);
    mix(3, 4, 9, 14, m[s[14]], m[s[15]]);
  }
  Words out;
  for (int i = 0; i < 8; ++i) out[i] = v[i] ^ v[i + 8];
  return out;
}

void compress_one(const LaneInput& input, std::uint32_t* out) {
  Words h = initial_value;
  for (int block = 0; block < input.blocks; ++block) {
    std::uint32_t flags = input.flags;
    if (block == 0) flags |= input.first_flag;
    if (block + 1 == input.blocks) flags |= input.last_flag;
    h = compress(h, input.data + std::size_t(block) * block_bytes, block_bytes, input.counter, flags);
  }
  std::copy(h.begin(), h.end(), out);
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {

constexpr int lane_count = 8;
typedef std::uint32_t Vector __attribute__((vector_size(32)));

[[gnu::always_inline]] inline Vector rotate_right_16(Vector x) {
  const __m256i order = _mm256_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11,
                                         8, 9, 14, 15, 12, 13);
  return (Vector)_mm256_shuffle_epi8((__m256i)x, order);
}
[[gnu::always_inline]] inline Vector rotate_right_8(Vector x) {
  const __m256i order = _mm256_setr_epi8(1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11,
                                         8, 13, 14, 15, 12);
  return (Vector)_mm256_shuffle_epi8((__m256i)x, order);
}
[[gnu::always_inline]] inline Vector rotate_right_12(Vector x) { return (x >> 12) | (x << 20); }
[[gnu::always_inline]] inline Vector rotate_right_7(Vector x) { return (x >> 7) | (x << 25); }
[[gnu::always_inline]] inline Vector spread(std::uint32_t x) { return (Vector)_mm256_set1_epi32(int(x)); }
[[gnu::always_inline]] inline Vector load(const void* from) {
  return (Vector)_mm256_loadu_si256(static_cast<const __m256i*>(from));
}
[[gnu::always_inline]] inline void store(void* to, Vector x) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), (__m256i)x);
}

// m[w] = word w of every message's block: two 8 × 8 transposes.
[[gnu::always_inline]] inline void load_block(const std::uint8_t* from, std::size_t stride, Vector* m) {
  for (int half = 0; half < 2; ++half) {
    __m256i r[8], t[8], u[8];
    for (int i = 0; i < 8; ++i) r[i] = (__m256i)load(from + std::size_t(i) * stride + 32 * half);
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
      u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
      u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
      u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int k = 0; k < 4; ++k) {
      m[8 * half + k] = (Vector)_mm256_permute2x128_si256(u[k], u[4 + k], 0x20);
      m[8 * half + 4 + k] = (Vector)_mm256_permute2x128_si256(u[k], u[4 + k], 0x31);
    }
  }
}

#include "state/digest/blake3_lanes.h"

}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
namespace avx512 {

constexpr int lane_count = 16;
typedef std::uint32_t Vector __attribute__((vector_size(64)));
// Masks that keep all lanes: GCC 12 warns about its own intrinsics without a mask.
constexpr __mmask16 all_lanes = 0xFFFF;
constexpr __mmask8 all_pairs = 0xFF;

[[gnu::always_inline]] inline Vector rotate_right_16(Vector x) { return (Vector)_mm512_maskz_ror_epi32(all_lanes, (__m512i)x, 16); }
[[gnu::always_inline]] inline Vector rotate_right_12(Vector x) { return (Vector)_mm512_maskz_ror_epi32(all_lanes, (__m512i)x, 12); }
[[gnu::always_inline]] inline Vector rotate_right_8(Vector x) { return (Vector)_mm512_maskz_ror_epi32(all_lanes, (__m512i)x, 8); }
[[gnu::always_inline]] inline Vector rotate_right_7(Vector x) { return (Vector)_mm512_maskz_ror_epi32(all_lanes, (__m512i)x, 7); }
[[gnu::always_inline]] inline Vector spread(std::uint32_t x) { return (Vector)_mm512_set1_epi32(int(x)); }
[[gnu::always_inline]] inline Vector load(const void* from) { return (Vector)_mm512_loadu_si512(from); }
[[gnu::always_inline]] inline void store(void* to, Vector x) { _mm512_storeu_si512(to, (__m512i)x); }

// m[w] = word w of every message's block: a 16 × 16 transpose.
[[gnu::always_inline]] inline void load_block(const std::uint8_t* from, std::size_t stride, Vector* m) {
  __m512i r[16], t[16], u[16];
  for (int i = 0; i < 16; ++i) r[i] = (__m512i)load(from + std::size_t(i) * stride);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_epi32(all_lanes, r[i], r[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_epi32(all_lanes, r[i], r[i + 1]);
  }
  // u[4g + k]: each quarter j holds the words 4j + k of rows 4g … 4g + 3.
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_maskz_unpacklo_epi64(all_pairs, t[i], t[i + 2]);
    u[i + 1] = _mm512_maskz_unpackhi_epi64(all_pairs, t[i], t[i + 2]);
    u[i + 2] = _mm512_maskz_unpacklo_epi64(all_pairs, t[i + 1], t[i + 3]);
    u[i + 3] = _mm512_maskz_unpackhi_epi64(all_pairs, t[i + 1], t[i + 3]);
  }
  for (int k = 0; k < 4; ++k) {
    const __m512i even_low = _mm512_maskz_shuffle_i32x4(all_lanes, u[k], u[4 + k], 0x88);
    const __m512i odd_low = _mm512_maskz_shuffle_i32x4(all_lanes, u[k], u[4 + k], 0xdd);
    const __m512i even_high = _mm512_maskz_shuffle_i32x4(all_lanes, u[8 + k], u[12 + k], 0x88);
    const __m512i odd_high = _mm512_maskz_shuffle_i32x4(all_lanes, u[8 + k], u[12 + k], 0xdd);
    m[k] = (Vector)_mm512_maskz_shuffle_i32x4(all_lanes, even_low, even_high, 0x88);
    m[4 + k] = (Vector)_mm512_maskz_shuffle_i32x4(all_lanes, odd_low, odd_high, 0x88);
    m[8 + k] = (Vector)_mm512_maskz_shuffle_i32x4(all_lanes, even_low, even_high, 0xdd);
    m[12 + k] = (Vector)_mm512_maskz_shuffle_i32x4(all_lanes, odd_low, odd_high, 0xdd);
  }
}

#include "state/digest/blake3_lanes.h"

}  // namespace avx512
#pragma GCC pop_options
#endif

// Replaces `best`, and code that this machine does not support, with code that the machine supports.
Blake3Code usable(Blake3Code code) {
  if (code == Blake3Code::best) {
    if (blake3_supported(Blake3Code::avx512)) return Blake3Code::avx512;
    return blake3_supported(Blake3Code::avx2) ? Blake3Code::avx2 : Blake3Code::portable;
  }
  return blake3_supported(code) ? code : Blake3Code::portable;
}

// Chaining values [count, 8] of messages `stride` bytes apart. `out` may overlap the input.
void compress_many(Blake3Code code, LaneInput input, std::size_t count, std::uint32_t* out) {
  const auto advance = [&](std::size_t lanes) {
    input.data += lanes * input.stride;
    if (input.counts) input.counter += lanes;
    count -= lanes;
    out += 8 * lanes;
  };
#if defined(__x86_64__)
  if (code == Blake3Code::avx512) {
    for (; count >= avx512::lane_count; advance(avx512::lane_count)) avx512::compress_lanes(input, out);
  }
  // (A machine with AVX-512 also has AVX2.)
  if (code != Blake3Code::portable) {
    for (; count >= avx2::lane_count; advance(avx2::lane_count)) avx2::compress_lanes(input, out);
  }
#endif
  for (; count > 0; advance(1)) compress_one(input, out);
}

Words parent(const Words& left, const Words& right, std::uint32_t flags = 0) {
  std::uint8_t block[block_bytes];
  std::memcpy(block, left.data(), 32);
  std::memcpy(block + 32, right.data(), 32);
  return compress(initial_value, block, block_bytes, 0, parent_flag | flags);
}

// Number of chunks whose chaining values are kept at once: 32 KiB of stack.
constexpr std::size_t chunks_at_once = 1024;

// The roots of the two halves of a subtree of `chunks` whole chunks, which must be a power of two, at least 2.
void subtree_halves(Blake3Code code, const std::uint8_t* data, std::size_t chunks, std::uint64_t counter, Words* halves) {
  if (chunks > chunks_at_once) {
    for (std::size_t half = 0; half < 2; ++half) {
      Words quarters[2];
      subtree_halves(code, data + half * chunks / 2 * chunk_size, chunks / 2, counter + half * chunks / 2, quarters);
      halves[half] = parent(quarters[0], quarters[1]);
    }
    return;
  }
  alignas(64) std::uint32_t values[chunks_at_once * 8];
  compress_many(code, {data, chunk_size, chunk_blocks, counter, true, 0, chunk_start_flag, chunk_end_flag}, chunks, values);
  for (; chunks > 2; chunks /= 2) {
    const auto* pairs = reinterpret_cast<const std::uint8_t*>(values);
    compress_many(code, {pairs, block_bytes, 1, 0, false, parent_flag, 0, 0}, chunks / 2, values);
  }
  std::copy_n(values, 8, halves[0].begin());
  std::copy_n(values + 8, 8, halves[1].begin());
}

}  // namespace

bool blake3_supported(Blake3Code code) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  static const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f");
  if (code == Blake3Code::avx512) return has_avx512;
  if (code == Blake3Code::avx2) return has_avx2;
#else
  if (code == Blake3Code::avx512 || code == Blake3Code::avx2) return false;
#endif
  return true;
}

Blake3::Blake3(Blake3Code code) : code_(usable(code)), chunk_(initial_value) {}

// Adds bytes that do not go past the end of the chunk. The chunk's last block stays uncompressed.
void Blake3::add_to_chunk(const std::uint8_t* data, std::size_t size) {
  const auto compress_block = [this](const std::uint8_t* block) {
    chunk_ = compress(chunk_, block, block_bytes, chunks_, blocks_ == 0 ? chunk_start_flag : 0);
    ++blocks_;
  };
  while (size > 0) {
    if (held_ == block_bytes) {
      compress_block(block_.data());
      held_ = 0;
    }
    if (held_ == 0) {
      for (; size > block_bytes; data += block_bytes, size -= block_bytes) compress_block(data);
    }
    const std::size_t part = std::min(size, block_bytes - held_);
    std::memcpy(block_.data() + held_, data, part);
    held_ += std::uint32_t(part);
    data += part;
    size -= part;
  }
}

// Keeps one subtree for each bit set in the number of chunks. The last two subtrees are merged only when more input follows, since the
// tree's last compression must be flagged as its root.
void Blake3::merge(std::uint64_t chunks) {
  for (const auto stay = std::size_t(std::popcount(chunks)); depth_ > stay; --depth_) {
    subtrees_[depth_ - 2] = parent(subtrees_[depth_ - 2], subtrees_[depth_ - 1]);
  }
}

void Blake3::push(const Words& value, std::uint64_t chunks_before) {
  merge(chunks_before);
  subtrees_[depth_++] = value;
}

void Blake3::add(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  if (size == 0) return;
  const auto end_chunk = [this] {
    push(compress(chunk_, block_.data(), held_, chunks_, chunk_end_flag | (blocks_ == 0 ? chunk_start_flag : 0)), chunks_);
    ++chunks_;
    chunk_ = initial_value;
    blocks_ = held_ = 0;
  };
  if (chunk_bytes() > 0) {
    const std::size_t part = std::min(size, chunk_size - chunk_bytes());
    add_to_chunk(bytes, part);
    bytes += part;
    size -= part;
    if (size == 0) return;
    end_chunk();
  }
  while (size > chunk_size) {
    // The largest subtree that may begin at this chunk and that the remaining input fills.
    std::size_t chunks = std::bit_floor(size) / chunk_size;
    while ((chunks_ & (chunks - 1)) != 0) chunks /= 2;
    if (chunks == 1) {
      add_to_chunk(bytes, chunk_size);
      end_chunk();
    } else {
      Words halves[2];
      subtree_halves(code_, bytes, chunks, chunks_, halves);
      push(halves[0], chunks_);
      push(halves[1], chunks_ + chunks / 2);
      chunks_ += chunks;
    }
    bytes += chunks * chunk_size;
    size -= chunks * chunk_size;
  }
  if (size > 0) {
    merge(chunks_);
    add_to_chunk(bytes, size);
  }
}

Blake3Digest Blake3::finish() {
  Words root;
  if (depth_ == 0 || chunk_bytes() > 0) {
    std::fill(block_.begin() + held_, block_.end(), std::uint8_t{0});
    root = compress(chunk_, block_.data(), held_, chunks_,
                    chunk_end_flag | (blocks_ == 0 ? chunk_start_flag : 0) | (depth_ == 0 ? root_flag : 0));
  } else {
    root = subtrees_[--depth_];
  }
  while (depth_ > 0) {
    --depth_;
    root = parent(subtrees_[depth_], root, depth_ == 0 ? root_flag : 0);
  }
  Blake3Digest digest;
  std::memcpy(digest.data(), root.data(), digest.size());
  return digest;
}

Blake3Digest blake3(std::span<const std::byte> message, Blake3Code code) {
  Blake3 hash(code);
  hash.add(message.data(), message.size());
  return hash.finish();
}

}  // namespace longhaul
