// The device's digests of leaves equal the CPU's, wherever tensors begin and end.
#include "cuda/kernels/digest.h"

#include <algorithm>

#include "support/device_checks.h"
// The CPU's code is in a library that the device's tests do not link.
#include "state/digest/blake3.cc"

using namespace longhaul;
using namespace longhaul::test;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(size_t n) {
  Bytes bytes(n);
  for (size_t i = 0; i < n; i += 4) {
    const uint32_t word = philox4x32_10({uint32_t(i), 9, 0, 0}, {5, 6})[0];
    for (size_t j = i; j < std::min(n, i + 4); ++j) bytes[j] = uint8_t(word >> (8 * (j - i)));
  }
  return bytes;
}

std::vector<uint32_t> words_of(const Blake3Digest& digest) {
  std::vector<uint32_t> words(8);
  std::memcpy(words.data(), digest.data(), digest.size());
  return words;
}

std::vector<uint32_t> on_cpu(const Bytes& bytes) {
  std::vector<uint32_t> all;
  for (size_t at = 0; at < bytes.size(); at += cuda::leaf_bytes) {
    const size_t size = std::min<size_t>(cuda::leaf_bytes, bytes.size() - at);
    const auto words = words_of(blake3(std::as_bytes(std::span(bytes).subspan(at, size))));
    all.insert(all.end(), words.begin(), words.end());
  }
  return all;
}

/// Tensors of these sizes, each in memory of its own, `offset` bytes past an aligned address.
std::vector<uint32_t> on_device(const Bytes& bytes, const std::vector<size_t>& sizes, size_t offset, int fault) {
  std::vector<DeviceArray<uint8_t>> tensors;
  tensors.reserve(sizes.size());
  std::vector<cuda::DigestPart> parts;
  size_t at = 0;
  for (const size_t size : sizes) {
    Bytes tensor(offset, 0);
    tensor.insert(tensor.end(), bytes.begin() + std::ptrdiff_t(at), bytes.begin() + std::ptrdiff_t(at + size));
    tensors.emplace_back(tensor);
    parts.push_back({tensors.back().data() + offset, at});
    at += size;
  }
  const DeviceArray<cuda::DigestPart> device_parts(parts);
  const DeviceArray<uint32_t> digests(size_t(cuda::leaf_count(at)) * 8);
  cuda::testing::leaf_digests({device_parts.data(), int(parts.size()), at, digests.data()}, stream(), fault);
  return digests.values();
}

void one_leaf_of_any_length() {
  for (const size_t size : {1, 3, 63, 64, 65, 1023, 1024, 1025, 2048, 3000, 3 * 1024, 5 * 1024 + 1, 17 * 1024, 1 << 20}) {
    const Bytes bytes = random_bytes(size);
    for (const size_t offset : {0, 1})
      check(on_device(bytes, {size}, offset, 0) == on_cpu(bytes), std::to_string(size) + " bytes, offset " + std::to_string(offset));
  }
}

/// Leaves that begin in one tensor and end in another; tensors that end within a block or a word; an empty tensor.
void leaves_of_several_tensors() {
  const std::vector<std::vector<size_t>> cuts{
      {1 << 20, 4096}, {100, 0, 3, 900, 21, 1024, 5000}, {(1 << 20) - 10, 30, (1 << 20) + 7}, {64, 64, 1, 1, 1, 1}};
  for (const auto& sizes : cuts) {
    size_t total = 0;
    for (const size_t size : sizes) total += size;
    const Bytes bytes = random_bytes(total);
    for (const size_t offset : {0, 2})
      check(on_device(bytes, sizes, offset, 0) == on_cpu(bytes),
            std::to_string(sizes.size()) + " tensors, offset " + std::to_string(offset));
  }
}

void every_schedule_gives_the_same_digest_and_needs_the_barriers() {
  const Bytes bytes = random_bytes(600 * 1024 + 5);
  check_schedules<uint32_t>([&](int fault) { return on_device(bytes, {5000, bytes.size() - 5000}, 0, fault); }, on_cpu(bytes), 2, "leaf");
}

}  // namespace

int main() {
  return run({
      {"one leaf of any length", one_leaf_of_any_length},
      {"leaves of several tensors", leaves_of_several_tensors},
      {"every schedule gives the same digest and needs the barriers", every_schedule_gives_the_same_digest_and_needs_the_barriers},
  });
}
