// Random and damaged input, the same in every run. The parser and the frame reader give a value or one error; the engine answers, or ends
// as the protocol says. Nothing crashes.
#include <cstring>

#include "support/checks.h"
#include "support/forked_engine.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

class Random {
 public:
  explicit Random(std::uint32_t stream) : stream_(stream) {}
  // A random number in [0, bound).
  std::size_t below(std::size_t bound) { return philox4x32_10({next_++, stream_, 0, 0}, {5, 6})[0] % bound; }

 private:
  std::uint32_t stream_;
  std::uint32_t next_ = 0;
};

std::string random_bytes(Random& random, std::size_t most) {
  std::string bytes(random.below(most + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(256));
  return bytes;
}

// Damages `bytes` one to four times: flips a bit, writes a byte that has a meaning, or removes, doubles or moves a piece.
std::string damaged(Random& random, std::string bytes) {
  static constexpr std::string_view meaningful("{}[]\",:\\-+.eE0919tfnu \0\x01\x7f\x80\xff", 28);
  for (std::size_t times = 1 + random.below(4); times > 0 && !bytes.empty(); --times) {
    const std::size_t at = random.below(bytes.size()), size = 1 + random.below(std::min<std::size_t>(bytes.size() - at, 16));
    switch (random.below(5)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8))); break;
      case 1: bytes[at] = meaningful[random.below(meaningful.size())]; break;
      case 2: bytes.erase(at, size); break;
      case 3: bytes.insert(at, bytes.substr(at, size)); break;
      case 4: bytes.insert(random.below(bytes.size()), bytes.substr(at, size)); break;
    }
  }
  return bytes;
}

// Either a value, or an error that can be logged.
bool is_one_answer(bool has_value, const std::string& error) {
  return has_value ? error.empty() : !error.empty() && error.size() < 4096;
}

void json_is_a_value_or_one_error() {
  Random random(1);
  const std::string texts[] = {
      R"({"verb":"generate","key":{"seed":9007199254740991,"domain":"train"},"stop_tokens":[1,2,-3.5e-7],"a":null})",
      R"([[[[]]],"\u00e9\ud83d\ude00\n\\\"",true,false,0,-0,1e308,5e-324])",
      "{\"\xf0\x9f\x98\x80\":{\"\":{}},\"b\":[{\"c\":\"\xc3\xa9\"}]}",
  };
  int accepted = 0;
  for (int i = 0; i < 60'000; ++i) {
    const std::string text = i % 4 == 0 ? random_bytes(random, 40) : damaged(random, texts[i % 3]);
    std::string error;
    const auto value = parse_json(text, error);
    CHECK(is_one_answer(value.has_value(), error));
    if (!value) continue;
    ++accepted;
    // An accepted value is written as text that means the same.
    const std::string written = write_json(*value, KeyOrder::sorted);
    const auto again = parse_json(written, error);
    CHECK(again.has_value() && write_json(*again, KeyOrder::sorted) == written);
    if (test::failures > 0) return;
  }
  CHECK(accepted > 2'000);
}

std::string bytes_of_frame(std::uint32_t id, Json header, std::span<const OutgoingArray> arrays = {}) {
  const auto bytes = encode_frame(id, std::move(header), arrays);
  return {bytes.begin(), bytes.end()};
}

void a_frame_is_whole_or_one_error() {
  Random random(2);
  const std::vector<std::int32_t> numbers{1, 2, 3, 4, 5, 6};
  const OutgoingArray arrays[] = {{"tokens", DType::i32, {6}, raw_bytes(std::span<const std::int32_t>(numbers))},
                                  {"table", DType::u8, {2, 3, 4}, raw_bytes(std::span<const std::int32_t>(numbers))}};
  Json header;
  header.set("verb", "score");
  const std::string good = bytes_of_frame(7, std::move(header), arrays).substr(4);
  int accepted = 0;
  for (int i = 0; i < 40'000; ++i) {
    const std::string text = i % 8 == 0 ? random_bytes(random, 60) : damaged(random, good);
    std::string error;
    const auto frame = decode_frame({text.begin(), text.end()}, error);
    CHECK(is_one_answer(frame.has_value(), error));
    if (!frame) continue;
    ++accepted;
    const std::uint8_t* end = frame->body.data() + frame->body.size();
    for (const ArrayView& array : frame->arrays) {
      CHECK(array.bytes.data() >= frame->body.data() && array.bytes.data() + array.bytes.size() <= end);
    }
    if (test::failures > 0) return;
  }
  CHECK(accepted > 400);
}

std::string bytes_of(std::uint32_t number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

// A frame with correct lengths and an arbitrary header.
std::string framed(std::uint32_t id, const std::string& header, const std::string& payload) {
  const std::string body = bytes_of(id) + bytes_of(static_cast<std::uint32_t>(header.size())) + header + payload;
  return bytes_of(static_cast<std::uint32_t>(body.size())) + body;
}

// A damaged header that is still a JSON object.
std::string damaged_header(Random& random, const std::string& header) {
  while (true) {
    std::string text = damaged(random, header), error;
    const auto value = parse_json(text, error);
    if (value && value->object() != nullptr) return text;
  }
}

// Headers of requests that a client may send to an engine that holds `state`. None of them writes a file.
std::vector<std::string> headers(const std::string& state) {
  const std::string named = R"(,"state":")" + state + R"(")", tokens = R"(,"arrays":[{"name":"tokens","dtype":"I32","shape":[30]}])";
  const std::string key = R"("key":{"seed":5,"domain":"train","step":1,"slot":0,"sample":0})";
  return {
      R"({"verb":"generate","temperature":1,"max_new_tokens":9,"stop_tokens":[3],"top_p":0.9,"top_k":5,)" + key + named + tokens + "}",
      R"({"verb":"score","temperature":0.5)" + named + tokens + "}",
      write_json(update_request(state, {"/nowhere/batch", std::string(64, 'a')}, 2, "first")),
      R"({"verb":"cancel","target":1})",
      R"({"verb":"stats"})",
      R"({"verb":"load_state","path":"/nowhere/state"})",
      R"({"verb":"load_hf","path":"/nowhere/model","moments":"int8"})",
      R"({"verb":"load_weights","path":"/nowhere/weights","lora":{"rank":4,"alpha":8,"targets":["q_proj"],"seed":1}})",
      R"({"verb":"set_reference","from":"held"})",
      R"({"verb":"set_vocabulary","arrays":[{"name":"bytes","dtype":"U8","shape":[0]},{"name":"lengths","dtype":"I32","shape":[30]}]})",
      R"({"verb":"held"})",
      R"({"verb":"hello","protocol":2,"threads":1})",
  };
}

// The log lines above level info.
std::string complaints(const std::string& log) {
  std::string rest;
  for (std::size_t at = 0; at < log.size();) {
    const std::size_t end = std::min(log.find('\n', at), log.size() - 1) + 1;
    const std::string line = log.substr(at, end - at);
    if (line.find(R"("level":"info")") == std::string::npos) rest += line;
    at = end;
  }
  return rest;
}

void the_engine_answers_or_ends_as_the_protocol_says() {
  Random random(3);
  const std::vector<std::int32_t> tokens = random_tokens(30, tiny_architecture().vocab_size, 1);
  const auto token_bytes = raw_bytes(std::span<const std::int32_t>(tokens));
  const std::string payload(token_bytes.begin(), token_bytes.end());
  int answered = 0, broken = 0;
  for (int i = 0; i < 110 && test::failures == 0; ++i) {
    ForkedEngine engine;
    const std::string state = engine.start();
    const std::vector<std::string> good = headers(state);
    std::string stream;
    const auto frames = static_cast<std::uint32_t>(1 + random.below(12));
    for (std::uint32_t id = 1; id <= frames; ++id) {
      const std::string& header = good[random.below(good.size())];
      const bool has_tokens = header.find("arrays") != std::string::npos;
      stream += framed(id, damaged_header(random, header), has_tokens ? payload : "");
    }
    if (random.below(2) == 0) stream += damaged(random, framed(frames + 1, good[0], payload));
    engine.write_all(stream);
    // Every whole frame is answered unless the stream is broken. The engine may also wait for the rest of a frame, so silence is allowed.
    std::uint32_t replies = 0;
    while (true) {
      const Answer answer = engine.receive(replies < frames ? 2000 : 20);
      if (!answer.alive) break;
      ++replies;
      ++answered;
      CHECK(answer.ok() || answer.error().find(": ") != std::string::npos);
      CHECK(answer.state() == state);
    }
    engine.hang_up();
    const int status = engine.end();
    const std::string said = complaints(engine.errors());
    const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0 && said.empty();
    const bool refused = WIFEXITED(status) && WEXITSTATUS(status) == 3 && said.find("broken stream: ") != std::string::npos &&
                         said.find('\n') == said.size() - 1;
    if (!clean && !refused) std::printf("stream %d: status %x, %s\n", i, static_cast<unsigned>(status), said.c_str());
    CHECK(clean || refused);
    broken += refused;
  }
  std::printf("%d replies, %d broken streams\n", answered, broken);
  CHECK(answered > 100 && broken > 20);
}

}  // namespace

int main() {
  json_is_a_value_or_one_error();
  a_frame_is_whole_or_one_error();
  the_engine_answers_or_ends_as_the_protocol_says();
  return test::finish();
}
