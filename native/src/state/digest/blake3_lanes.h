// BLAKE3's compression of several messages side by side, one in each vector lane. blake3.cc includes this file once for each width, so that
// each copy is compiled for its instruction set; hence there is no include guard. The surrounding namespace must define `Vector`,
// `lane_count`, `rotate_right_16`, `_12`, `_8`, `_7`, `spread`, `load`, `store` and `load_block`.

[[gnu::always_inline]] inline void mix(Vector* v, int a, int b, int c, int d, Vector x, Vector y) {
  v[a] = v[a] + v[b] + x;
  v[d] = rotate_right_16(v[d] ^ v[a]);
  v[c] = v[c] + v[d];
  v[b] = rotate_right_12(v[b] ^ v[c]);
  v[a] = v[a] + v[b] + y;
  v[d] = rotate_right_8(v[d] ^ v[a]);
  v[c] = v[c] + v[d];
  v[b] = rotate_right_7(v[b] ^ v[c]);
}

[[gnu::always_inline]] inline void round(Vector* v, const Vector* m, const std::uint8_t* s) {
  mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
  mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
  mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
  mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
  mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
  mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
  mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
  mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
}

// Chaining values of lane_count messages of whole blocks. Reads a block's whole input before it writes.
inline void compress_lanes(const LaneInput& input, std::uint32_t* out) {
  alignas(64) std::uint32_t low[lane_count], high[lane_count];
  for (int lane = 0; lane < lane_count; ++lane) {
    const std::uint64_t counter = input.counter + (input.counts ? std::uint64_t(lane) : 0);
    low[lane] = std::uint32_t(counter);
    high[lane] = std::uint32_t(counter >> 32);
  }
  Vector h[8];
  for (int i = 0; i < 8; ++i) h[i] = spread(initial_value[i]);
  for (int block = 0; block < input.blocks; ++block) {
    const std::uint8_t* from = input.data + std::size_t(block) * block_bytes;
    for (int lane = 0; lane < lane_count; ++lane) __builtin_prefetch(from + std::size_t(lane) * input.stride + 4 * block_bytes);
    Vector m[16];
    load_block(from, input.stride, m);
    std::uint32_t flags = input.flags;
    if (block == 0) flags |= input.first_flag;
    if (block + 1 == input.blocks) flags |= input.last_flag;
    Vector v[16] = {h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], spread(initial_value[0]), spread(initial_value[1]),
                    spread(initial_value[2]), spread(initial_value[3]), load(low), load(high), spread(block_bytes), spread(flags)};
    round(v, m, message_schedule[0].data());
    round(v, m, message_schedule[1].data());
    round(v, m, message_schedule[2].data());
    round(v, m, message_schedule[3].data());
    round(v, m, message_schedule[4].data());
    round(v, m, message_schedule[5].data());
    round(v, m, message_schedule[6].data());
    for (int i = 0; i < 8; ++i) h[i] = v[i] ^ v[i + 8];
  }
  alignas(64) std::uint32_t words[8][lane_count];
  for (int i = 0; i < 8; ++i) store(words[i], h[i]);
  for (int lane = 0; lane < lane_count; ++lane) {
    for (int i = 0; i < 8; ++i) out[8 * lane + i] = words[i][lane];
  }
}
