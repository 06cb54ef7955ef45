// The emulated tensor core, and the copies and loads that feed it: it has the bits that an H100 gave.
#include <bit>
#include <cstdint>

#include "base/tensor_core.h"
#include "cuda/device/device.h"
#include "support/device_checks.h"
#include "support/fixture_file.h"

using namespace longhaul;
using namespace longhaul::test;
using namespace longhaul::cuda;

namespace {

constexpr int rows = 16, columns = 8, depth = 16;

/// A [16, 16], B [8, 16] and their like, as words of two bf16 numbers.
constexpr int words_of_row = depth / 2;

std::vector<uint32_t> words_of(const std::vector<float>& values) {
  std::vector<uint32_t> words(values.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) words[i / 2] |= std::bit_cast<uint32_t>(values[i]) >> 16 << (i % 2 * 16);
  return words;
}

// One warp a product: D = A·Bᵀ + C.
__global__ void __launch_bounds__(32) multiply(const uint32_t* a, const uint32_t* b, const float* c, float* d) {
  const int lane = int(threadIdx.x), row = lane / 4, pair = lane % 4;
  const uint32_t* own_a = a + blockIdx.x * unsigned(rows * words_of_row);
  const uint32_t* own_b = b + blockIdx.x * unsigned(columns * words_of_row);
  const unsigned left[4] = {own_a[row * words_of_row + pair], own_a[(row + 8) * words_of_row + pair], own_a[row * words_of_row + pair + 4],
                            own_a[(row + 8) * words_of_row + pair + 4]};
  const unsigned right[2] = {own_b[row * words_of_row + pair], own_b[row * words_of_row + pair + 4]};
  const unsigned at = blockIdx.x * unsigned(rows * columns) + unsigned(row * columns + pair * 2);
  float sum[4] = {c[at], c[at + 1], c[at + 8 * columns], c[at + 8 * columns + 1]};
  mma(sum, left, right);
  d[at] = sum[0], d[at + 1] = sum[1], d[at + 8 * columns] = sum[2], d[at + 8 * columns + 1] = sum[3];
}

void products_have_the_bits_of_the_hardware() {
  const FixtureFile golden("h100_sums");
  size_t compared = 0;
  for (const std::string kind : {"normal", "wide", "all_finite", "zeros"}) {
    const std::vector<float> expected = golden.floats(kind + ".d");
    const cuda::DeviceArray<uint32_t> a(words_of(golden.halves(kind + ".a")), stream()), b(words_of(golden.halves(kind + ".b")), stream());
    const cuda::DeviceArray<float> c(golden.floats(kind + ".c"), stream());
    cuda::DeviceArray<float> d(expected.size());
    launch(multiply, dim3(unsigned(expected.size()) / (rows * columns)), dim3(32), 0, stream(), a.data(), b.data(), c.data(), d.data());
    check_same_values(d.host(stream()), expected, kind);
    compared += expected.size();
  }
  check_equal(compared, size_t{131'072}, "results of the hardware");
}

constexpr int warps = 4, tile_words = 16 * words_of_row;

// Each warp copies a tile [16, 16] of 16-bit numbers to shared memory, loads it as four matrices, and writes what its lanes have got. Fault 1: it
// does not wait for the copies; 2: lanes do not wait for each other.
template <int Fault, bool Transposed>
__global__ void __launch_bounds__(32 * warps) pass_through(const uint32_t* from, uint32_t* out, int first_there) {
  SHARED(uint4, tiles, [warps][tile_words / 4]);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  copy_async(&tiles[warp][lane], from + warp * tile_words + lane * 4, lane >= first_there);
  commit_copies();
  if (Fault != 1) wait_for_copies<0>();
  if (Fault != 2) __syncwarp();
  unsigned r[4];
  // Matrix i: rows 8 · (i % 2), columns 8 · (i / 2).
  const uint4* row = &tiles[warp][(lane % 16) * 2 + lane / 16];
  if (Transposed)
    load_transposed_matrices(r, row);
  else
    load_matrices(r, row);
  for (int i = 0; i < 4; ++i) out[(warp * 32 + lane) * 4 + i] = r[i];
}

std::vector<float> tile_values() {
  std::vector<float> values;
  for (int i = 0; i < warps * 16 * depth; ++i) values.push_back(std::bit_cast<float>(uint32_t(i + 0x3F80) << 16));
  return values;
}

template <int Fault, bool Transposed>
std::vector<uint32_t> passed_through(int first_there) {
  const cuda::DeviceArray<uint32_t> from(words_of(tile_values()), stream());
  cuda::DeviceArray<uint32_t> out(size_t(warps) * 32 * 4);
  launch(pass_through<Fault, Transposed>, dim3(1), dim3(32 * warps), 0, stream(), from.data(), out.data(), first_there);
  return out.host(stream());
}

std::vector<uint32_t> expected_lanes(bool transposed, int first_there) {
  std::vector<uint32_t> expected;
  const std::vector<float> values = tile_values();
  for (int warp = 0; warp < warps; ++warp)
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        uint32_t word = 0;
        for (int e = 0; e < 2; ++e) {
          const int long_side = lane / 4, short_side = lane % 4 * 2 + e;
          const int row = i % 2 * 8 + (transposed ? short_side : long_side), column = i / 2 * 8 + (transposed ? long_side : short_side);
          // A lane copied half a row.
          const bool there = row * 2 + column / 8 >= first_there;
          const uint32_t bits = std::bit_cast<uint32_t>(values[size_t((warp * 16 + row) * depth + column)]) >> 16;
          word |= (there ? bits : 0) << (e * 16);
        }
        expected.push_back(word);
      }
  return expected;
}

void matrices_are_loaded_as_they_were_copied() {
  for_each_schedule([](const std::string& what) {
    check((passed_through<0, false>(0)) == expected_lanes(false, 0), what);
    check((passed_through<0, true>(0)) == expected_lanes(true, 0), what + ", transposed");
    check((passed_through<0, false>(9)) == expected_lanes(false, 9), what + ", with zeros");
  });
}

void a_missing_wait_shows() {
  bool copies = false, lanes = false;
  for_each_schedule([&](const std::string&) {
    copies = copies || (passed_through<1, false>(0)) != expected_lanes(false, 0);
    lanes = lanes || (passed_through<2, false>(0)) != expected_lanes(false, 0);
  });
  check(copies, "copies that nobody waits for");
  check(lanes, "rows that other lanes have not copied");
}

void values_are_rounded_to_nearest_and_ties_to_even() {
  const auto rounded = [](uint32_t bits) { return bf16_pair(std::bit_cast<float>(bits), 1.0f); };
  check_equal(rounded(0x3F808000u), 0x3F803F80u, "a tie, to even below");
  check_equal(rounded(0x3F818000u), 0x3F803F82u, "a tie, to even above");
  check_equal(rounded(0x3F808001u), 0x3F803F81u, "above a tie");
  check_equal(rounded(0x7F7FFFFFu), 0x3F807F80u, "beyond the largest");
  check_equal(rounded(0xFFC00001u), 0x3F807FFFu, "NaN");
}

}  // namespace

int main() {
  return run({{"products have the bits of the hardware", products_have_the_bits_of_the_hardware},
              {"matrices are loaded as they were copied", matrices_are_loaded_as_they_were_copied},
              {"a missing wait shows", a_missing_wait_shows},
              {"values are rounded to nearest, and ties to even", values_are_rounded_to_nearest_and_ties_to_even}});
}
