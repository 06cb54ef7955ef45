// Compares BLAKE3 with its authors' test vectors (input byte i is i mod 251), on every code path and in pieces of any size.
#include "state/digest/blake3.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/checks.h"
#include "state/digest/sha256.h"

using namespace longhaul;

namespace {

constexpr Blake3Code blake3_codes[] = {Blake3Code::best, Blake3Code::avx512, Blake3Code::avx2, Blake3Code::portable};

std::vector<std::byte> message_of(std::size_t size) {
  std::vector<std::byte> message(size);
  for (std::size_t i = 0; i < size; ++i) message[i] = std::byte(i % 251);
  return message;
}

std::string hash(std::span<const std::byte> message, Blake3Code code, std::size_t piece) {
  Blake3 hash(code);
  for (std::size_t at = 0; at < message.size(); at += piece) hash.add(message.data() + at, std::min(piece, message.size() - at));
  return to_hex(hash.finish());
}

void has_the_published_digests() {
  const struct {
    std::size_t size;
    const char* digest;
  } vectors[] = {
      {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
      {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
      {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
      {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
      {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
      {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
      {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
      {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
      {3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
      {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
      {4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
      {5120, "9cadc15fed8b5d854562b26a9536d9707cadeda9b143978f319ab34230535833"},
      {5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff"},
      {6144, "3e2e5b74e048f3add6d21faab3f83aa44d3b2278afb83b80b3c35164ebeca205"},
      {6145, "f1323a8631446cc50536a9f705ee5cb619424d46887f3c376c695b70e0f0507f"},
      {7168, "61da957ec2499a95d6b8023e2b0e604ec7f6b50e80a9678b89d2628e99ada77a"},
      {7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817"},
      {8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
      {8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
      {16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
      {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
      {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
  };
  for (const auto& [size, digest] : vectors) {
    const auto message = message_of(size);
    for (const Blake3Code code : blake3_codes) {
      CHECK(to_hex(blake3(message, code)) == digest);
      for (const std::size_t piece : {std::size_t{63}, std::size_t{64}, std::size_t{1000}, std::size_t{1024}, std::size_t{5000}}) {
        CHECK(hash(message, code, piece) == digest);
      }
    }
  }
}

// Sizes at which the number of parallel chunks, the size of a subtree or its alignment changes.
void is_the_same_on_every_path_and_in_pieces() {
  const auto message = message_of((std::size_t{3} << 20) + 12345);
  const std::size_t mib = std::size_t{1} << 20;
  for (const std::size_t size : {std::size_t{8} << 10, (std::size_t{16} << 10) + 1, (std::size_t{24} << 10) - 1,
                                 (std::size_t{57} << 10) + 7, mib - 1, mib, mib + 1, 2 * mib, 3 * mib, message.size()}) {
    const auto part = std::span(message).first(size);
    const std::string expected = hash(part, Blake3Code::portable, 1024);
    for (const Blake3Code code : blake3_codes) {
      CHECK(to_hex(blake3(part, code)) == expected);
      for (const std::size_t piece : {std::size_t{4097}, std::size_t{65536}, std::size_t{100'003}, mib}) {
        CHECK(hash(part, code, piece) == expected);
      }
    }
  }
  // Every length near the borders of blocks and chunks.
  for (std::size_t size = 0; size < 3200; size += size % 64 < 62 && size % 1024 > 70 && size % 1024 < 950 ? 31 : 1) {
    const auto part = std::span(message).first(size);
    const std::string expected = to_hex(blake3(part, Blake3Code::portable));
    CHECK(to_hex(blake3(part)) == expected);
    CHECK(hash(part, Blake3Code::best, 1) == expected);
  }
}

}  // namespace

int main() {
  for (const auto& [code, name] : {std::pair(Blake3Code::avx512, "AVX-512"), std::pair(Blake3Code::avx2, "AVX2")}) {
    if (!blake3_supported(code)) std::printf("skipped: %s: this machine has none\n", name);
  }
  has_the_published_digests();
  is_the_same_on_every_path_and_in_pieces();
  return test::finish();
}
