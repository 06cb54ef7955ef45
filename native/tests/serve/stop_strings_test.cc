// Stop strings are found at the token in which they end, wherever the borders between tokens lie, and nowhere else.
#include "serve/generation/stop_strings.h"

#include <stdexcept>
#include <string_view>

#include "base/philox.h"
#include "support/checks.h"
#include "serve/generation/vocabulary.h"

using namespace longhaul;

namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Index of the piece in which one of `strings` ends; −1 if none does.
int found_in(const std::vector<std::string>& strings, const std::vector<std::string>& pieces) {
  StopStrings search(strings);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (search.advance(bytes_of(pieces[i]))) return static_cast<int>(i);
  }
  return -1;
}

void a_string_ends_in_the_token_that_completes_it() {
  CHECK(found_in({"stop"}, {"do not st", "op here"}) == 1);
  CHECK(found_in({"stop"}, {"s", "t", "o", "p"}) == 3);
  CHECK(found_in({"stop"}, {"stostop"}) == 0);
  CHECK(found_in({"stop"}, {"sto", "", "p"}) == 2);
  CHECK(found_in({"stop"}, {"sto", " p"}) == -1);
  CHECK(found_in({"</answer>", "\n\n"}, {"a\n", "b\n", "\nc</answer>"}) == 2);
  CHECK(found_in({"aab"}, {"a", "a", "a", "ab"}) == 3);
  // The border may lie within a character.
  CHECK(found_in({"é"}, {"caf\xc3", "\xa9!"}) == 1);
  CHECK(found_in({std::string("\0x", 2)}, {std::string("a\0", 2), "x"}) == 1);
  CHECK(found_in({}, {"anything"}) == -1);
}

// The result agrees with a plain search for any text of two letters, cut in any way.
void it_finds_what_a_plain_search_finds() {
  std::uint32_t next = 0;
  const auto below = [&](std::uint32_t bound) { return philox4x32_10({next++, 7, 0, 0}, {1, 2})[0] % bound; };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> strings(1 + below(3));
    for (std::string& one : strings) {
      for (std::uint32_t size = 1 + below(6); size > 0; --size) one += static_cast<char>('a' + below(2));
    }
    std::string text;
    std::vector<std::string> pieces(1 + below(12));
    int expected = -1;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      for (std::uint32_t size = below(4); size > 0; --size) pieces[i] += static_cast<char>('a' + below(2));
      text += pieces[i];
      for (const std::string& one : strings) {
        if (expected < 0 && text.find(one) != std::string::npos) expected = static_cast<int>(i);
      }
    }
    CHECK(found_in(strings, pieces) == expected);
    if (test::failures > 0) return;
  }
}

void out_of_bounds_strings_are_refused() {
  CHECK_THROWS(std::invalid_argument, StopStrings(std::vector<std::string>{"a", ""}), "stop_strings[1] has 0 bytes");
  CHECK_THROWS(std::invalid_argument, StopStrings(std::vector<std::string>{std::string(1025, 'a')}), "1 to 1024");
  CHECK_THROWS(std::invalid_argument, StopStrings(std::vector<std::string>(65, "a")), "65 stop_strings; at most 64");
}

void a_vocabulary_knows_the_bytes_of_its_tokens() {
  const std::vector<std::int32_t> lengths{1, 0, 3};
  const Vocabulary vocabulary({'a', 'b', 'c', 'd'}, lengths);
  CHECK(vocabulary.size() == 3);
  CHECK(vocabulary.bytes_of(0).size() == 1 && vocabulary.bytes_of(0)[0] == 'a');
  CHECK(vocabulary.bytes_of(1).empty());
  CHECK(vocabulary.bytes_of(2).size() == 3 && vocabulary.bytes_of(2)[2] == 'd');
  CHECK(vocabulary.bytes_of(3).empty() && vocabulary.bytes_of(-1).empty());
  const std::vector<std::int32_t> negative{2, -1, 3}, short_of{1, 2};
  CHECK_THROWS(std::invalid_argument, Vocabulary({'a', 'b', 'c', 'd'}, negative), "lengths[1] is -1");
  CHECK_THROWS(std::invalid_argument, Vocabulary({'a', 'b', 'c', 'd'}, short_of), "lengths add up to 3, but bytes has 4");
}

}  // namespace

int main() {
  a_string_ends_in_the_token_that_completes_it();
  it_finds_what_a_plain_search_finds();
  out_of_bounds_strings_are_refused();
  a_vocabulary_knows_the_bytes_of_its_tokens();
  return test::finish();
}
