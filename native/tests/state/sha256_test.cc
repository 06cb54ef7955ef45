// Compares SHA-256 with the vectors of FIPS 180-4 and NIST's examples, on both code paths.
#include "state/digest/sha256.h"

#include <string>

#include "support/checks.h"

using namespace longhaul;

namespace {

std::string hash(const std::string& text, Sha256Code code, std::size_t piece) {
  Sha256 hash(code);
  for (std::size_t at = 0; at < text.size(); at += piece) hash.add(std::string_view(text).substr(at, piece));
  return to_hex(hash.finish());
}

}  // namespace

int main() {
  const struct {
    std::string text;
    const char* digest;
  } vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {std::string(1'000'000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  if (!has_sha_instructions()) std::printf("skipped: SHA instructions: this machine has none\n");
  for (const auto& [text, digest] : vectors) {
    for (const Sha256Code code : {Sha256Code::best, Sha256Code::portable}) {
      for (const std::size_t piece : {std::size_t{1} << 20, std::size_t{63}, std::size_t{64}, std::size_t{1000}}) {
        CHECK(hash(text, code, piece) == digest);
      }
    }
  }
  // Both paths agree for every length near the borders of blocks and padding.
  for (std::size_t size = 0; size < 300; ++size) {
    const std::string text(size, static_cast<char>(size));
    CHECK(hash(text, Sha256Code::best, 7) == hash(text, Sha256Code::portable, 300));
  }
  return test::finish();
}
