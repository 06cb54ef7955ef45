#include "cuda/kernels/digest.h"

#include "cuda/device/device.h"

namespace longhaul::cuda {

namespace {

constexpr int digest_threads = 256, block_bytes = 64, chunk_bytes = 1024, leaf_chunks = int(leaf_bytes / chunk_bytes);
constexpr uint32_t chunk_start_flag = 1, chunk_end_flag = 2, parent_flag = 4, root_flag = 8;

/// A chaining value.
struct Words {
  uint32_t word[8];
};

DEVICE Words initial_words() {
  return {{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u}};
}

DEVICE uint32_t rotate_right(uint32_t x, int bits) { return (x >> bits) | (x << (32 - bits)); }

DEVICE void mix(uint32_t (&v)[16], int a, int b, int c, int d, uint32_t x, uint32_t y) {
  v[a] = v[a] + v[b] + x;
  v[d] = rotate_right(v[d] ^ v[a], 16);
  v[c] = v[c] + v[d];
  v[b] = rotate_right(v[b] ^ v[c], 12);
  v[a] = v[a] + v[b] + y;
  v[d] = rotate_right(v[d] ^ v[a], 8);
  v[c] = v[c] + v[d];
  v[b] = rotate_right(v[b] ^ v[c], 7);
}

/// The order of a block's words in the next round.
DEVICE void permute(uint32_t (&m)[16]) {
  const uint32_t next[16] = {m[2], m[6],  m[3],  m[10], m[7], m[0],  m[4],  m[13],
                             m[1], m[11], m[12], m[5],  m[9], m[14], m[15], m[8]};
  UNROLL
  for (int i = 0; i < 16; ++i) m[i] = next[i];
}

/// The chaining value after one block, m; `bytes` of it are the message's.
DEVICE Words compress(const Words& chaining, uint32_t (&m)[16], uint32_t bytes, uint32_t counter, uint32_t flags) {
  const Words initial = initial_words();
  uint32_t v[16];
  UNROLL
  for (int i = 0; i < 8; ++i) v[i] = chaining.word[i];
  UNROLL
  for (int i = 0; i < 4; ++i) v[8 + i] = initial.word[i];
  v[12] = counter, v[13] = 0, v[14] = bytes, v[15] = flags;
  UNROLL
  for (int round = 0; round < 7; ++round) {
    mix(v, 0, 4, 8, 12, m[0], m[1]);
    mix(v, 1, 5, 9, 13, m[2], m[3]);
    mix(v, 2, 6, 10, 14, m[4], m[5]);
    mix(v, 3, 7, 11, 15, m[6], m[7]);
    mix(v, 0, 5, 10, 15, m[8], m[9]);
    mix(v, 1, 6, 11, 12, m[10], m[11]);
    mix(v, 2, 7, 8, 13, m[12], m[13]);
    mix(v, 3, 4, 9, 14, m[14], m[15]);
    permute(m);
  }
  Words out;
  UNROLL
  for (int i = 0; i < 8; ++i) out.word[i] = v[i] ^ v[i + 8];
  return out;
}

/// The part that has this byte.
DEVICE int part_at(const LeafDigests& a, uint64_t byte) {
  int low = 0, high = a.part_count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (a.parts[middle].first <= byte)
      low = middle;
    else
      high = middle;
  }
  return low;
}

DEVICE uint64_t part_end(const LeafDigests& a, int part) { return part + 1 < a.part_count ? a.parts[part + 1].first : a.total_bytes; }

/// Reads a block of `bytes` bytes that starts at `at`, zero past them; `part` is the part of its first byte, and then that of its last.
DEVICE void read_block(const LeafDigests& a, uint64_t at, int bytes, int& part, uint32_t (&m)[16]) {
  while (part_end(a, part) <= at) ++part;
  const uint8_t* from = a.parts[part].data + (at - a.parts[part].first);
  if (bytes == block_bytes && at + block_bytes <= part_end(a, part) && size_t(from) % 4 == 0) {
    UNROLL
    for (int i = 0; i < 16; ++i) m[i] = load<uint32_t>(from + 4 * i);
    return;
  }
  UNROLL
  for (int i = 0; i < 16; ++i) {
    m[i] = 0;
    UNROLL
    for (int byte = 0; byte < 4; ++byte) {
      const uint64_t place = at + uint64_t(4 * i + byte);
      if (4 * i + byte >= bytes) continue;
      while (part_end(a, part) <= place) ++part;
      m[i] |= uint32_t(a.parts[part].data[place - a.parts[part].first]) << (8 * byte);
    }
  }
}

/// The chaining value of a chunk, whose number in its leaf is `chunk`. `only`: the leaf has no other, so this is its digest.
DEVICE Words chunk_value(const LeafDigests& a, uint64_t leaf_first, uint64_t leaf_end, int chunk, bool only) {
  const uint64_t first = leaf_first + uint64_t(chunk) * chunk_bytes;
  const int bytes = leaf_end - first < uint64_t(chunk_bytes) ? int(leaf_end - first) : chunk_bytes;
  int part = part_at(a, first);
  Words value = initial_words();
  for (int done = 0; done < bytes; done += block_bytes) {
    const int here = bytes - done < block_bytes ? bytes - done : block_bytes;
    uint32_t flags = done == 0 ? chunk_start_flag : 0;
    if (done + here == bytes) flags |= chunk_end_flag | (only ? root_flag : 0);
    uint32_t m[16];
    read_block(a, first + uint64_t(done), here, part, m);
    value = compress(value, m, uint32_t(here), uint32_t(chunk), flags);
  }
  return value;
}

/// A block of threads takes a leaf: first its chunks, then the tree above them, level by level. A node's value takes the place of its left
/// child's; a node without a sibling rises as it is.
template <int Fault>
__global__ void __launch_bounds__(digest_threads) leaf_kernel(LeafDigests a) {
  SHARED(Words, values, [leaf_chunks]);
  const uint64_t first = blockIdx.x * leaf_bytes, end = first + leaf_bytes < a.total_bytes ? first + leaf_bytes : a.total_bytes;
  const int chunks = int((end - first + chunk_bytes - 1) / chunk_bytes), thread = int(threadIdx.x);
  for (int chunk = thread; chunk < chunks; chunk += digest_threads) values[chunk] = chunk_value(a, first, end, chunk, chunks == 1);
  if (Fault != 1) __syncthreads();
  for (int nodes = chunks, apart = 1; nodes > 1; nodes = (nodes + 1) / 2, apart *= 2) {
    for (int pair = thread; pair < nodes / 2; pair += digest_threads) {
      Words& left = values[2 * pair * apart];
      const Words& right = values[(2 * pair + 1) * apart];
      uint32_t m[16];
      UNROLL
      for (int i = 0; i < 8; ++i) m[i] = left.word[i], m[8 + i] = right.word[i];
      left = compress(initial_words(), m, block_bytes, 0, parent_flag | (nodes == 2 ? root_flag : 0));
    }
    if (Fault != 2) __syncthreads();
  }
  if (thread < 8) a.digests[size_t(blockIdx.x) * 8 + thread] = values[0].word[thread];
}

template <int Fault>
void launch_leaves(const LeafDigests& args, Stream stream) {
  const uint64_t leaves = leaf_count(args.total_bytes);
  if (leaves > 0) launch(leaf_kernel<Fault>, dim3(unsigned(leaves)), dim3(digest_threads), 0, stream, args);
}

}  // namespace

void leaf_digests(const LeafDigests& args, Stream stream) { launch_leaves<0>(args, stream); }

namespace testing {

void leaf_digests(const LeafDigests& args, Stream stream, [[maybe_unused]] int fault) {
#ifndef __CUDACC__  // A GPU need not show that a barrier is missing.
  if (fault == 1) return launch_leaves<1>(args, stream);
  if (fault == 2) return launch_leaves<2>(args, stream);
#endif
  launch_leaves<0>(args, stream);
}

}  // namespace testing

}  // namespace longhaul::cuda
