// Options of a `generate` request: stop strings, which end a generation after a whole token, and truncated distributions.
#include "support/checks.h"
#include "support/forked_engine.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

// Token t has the bytes "<t>".
Answer send_vocabulary(ForkedEngine& engine, int tokens, const Json::Object& extra = {}) {
  std::vector<std::uint8_t> bytes;
  std::vector<std::int32_t> lengths;
  for (int token = 0; token < tokens; ++token) {
    const std::string text = "<" + std::to_string(token) + ">";
    bytes.insert(bytes.end(), text.begin(), text.end());
    lengths.push_back(static_cast<std::int32_t>(text.size()));
  }
  const OutgoingArray arrays[] = {
      {"bytes", DType::u8, {static_cast<std::int64_t>(bytes.size())}, raw_bytes(std::span<const std::uint8_t>(bytes))},
      {"lengths", DType::i32, {tokens}, raw_bytes(std::span<const std::int32_t>(lengths))}};
  Json request = verb_request("set_vocabulary");
  for (const JsonMember& field : extra) request.set(field.name, field.value);
  return engine.call(std::move(request), arrays);
}

Answer generate(ForkedEngine& engine, Json request) {
  const Tokens tokens(20, 3);
  const OutgoingArray arrays[] = {tokens.array()};
  return engine.call(std::move(request), arrays);
}

Answer generate(ForkedEngine& engine, const std::string& state, const Json::Object& extra, int most = 40) {
  Json request = generate_request(state, 1, most);
  for (const JsonMember& field : extra) request.set(field.name, field.value);
  return generate(engine, std::move(request));
}

void a_generation_ends_with_the_token_that_completes_a_stop_string() {
  ForkedEngine engine;
  const std::string state = engine.start();
  const Answer plain = generate(engine, state, {});
  CHECK(plain.text("finish") == "length" && plain.tokens.size() == 40);
  CHECK(generate(engine, state, {{"stop_strings", Json::Array{Json("x")}}}).error().find("send set_vocabulary") != std::string::npos);
  CHECK(send_vocabulary(engine, 71).ok());

  // A string that crosses the border between two tokens. The bytes of the prompt do not count.
  const int at = 7;
  const std::string text = std::to_string(plain.tokens[at - 1]) + "><" + std::to_string(plain.tokens[at]);
  std::string before;
  int expected = -1;
  for (std::size_t i = 0; i < plain.tokens.size() && expected < 0; ++i) {
    before += "<" + std::to_string(plain.tokens[i]) + ">";
    if (before.find(text) != std::string::npos) expected = static_cast<int>(i);
  }
  CHECK(expected >= 0 && expected <= at);
  const Answer stopped = generate(engine, state, {{"stop_strings", Json::Array{Json("nowhere"), Json(text)}}});
  CHECK(stopped.text("finish") == "stop_string");
  CHECK(static_cast<int>(stopped.tokens.size()) == expected + 1);
  CHECK(std::equal(stopped.tokens.begin(), stopped.tokens.end(), plain.tokens.begin()));
  CHECK(std::equal(stopped.logprobs.begin(), stopped.logprobs.end(), plain.logprobs.begin()));
  // A stop token wins over a stop string.
  const Answer token = generate(engine, state, {{"stop_strings", Json::Array{Json(text)}},
                                                {"stop_tokens", Json::Array{Json(plain.tokens[static_cast<std::size_t>(expected)])}}});
  CHECK(token.text("finish") == "stop" && token.tokens.size() <= stopped.tokens.size());

  CHECK(generate(engine, state, {{"stop_strings", Json::Array{Json("")}}}).error().find("stop_strings[0] has 0 bytes") != std::string::npos);
  CHECK(generate(engine, state, {{"stop_strings", "x"}}).error() == "BadInput: stop_strings must be a list of strings");
  CHECK(send_vocabulary(engine, 72).error() == "BadInput: lengths has 72 tokens, but the model's vocabulary 71");
  // A tokenizer may have fewer tokens than the model has rows.
  CHECK(send_vocabulary(engine, 60).ok());
}

void a_vocabulary_is_forgotten_when_the_models_vocabulary_size_changes() {
  ForkedEngine engine;
  engine.start();
  CHECK(send_vocabulary(engine, 71).ok());
  const std::string same = engine.call(ForkedEngine::load_request({{"seed", 8}})).state();
  CHECK(generate(engine, same, {{"stop_strings", Json::Array{Json("x")}}}).ok());
  Architecture larger = tiny_architecture();
  larger.vocab_size = 72;
  const std::string other = engine.call(ForkedEngine::load_request({{"architecture", architecture_json(larger)}})).state();
  CHECK(generate(engine, other, {{"stop_strings", Json::Array{Json("x")}}}).error().find("send set_vocabulary") != std::string::npos);
}

void truncated_sampling_reports_logprobs_of_the_whole_distribution() {
  ForkedEngine engine;
  const std::string state = engine.start();
  const Answer plain = generate(engine, state, {});
  const Answer whole = generate(engine, state, {{"top_p", 1}, {"top_k", 71}});
  CHECK(whole.tokens == plain.tokens && whole.logprobs == plain.logprobs);
  const Answer greedy = generate(engine, state, {{"top_k", 1}});
  const Answer narrow = generate(engine, state, {{"top_p", 1e-6}});
  CHECK(greedy.tokens.size() == 40 && greedy.tokens != plain.tokens);
  CHECK(narrow.tokens == greedy.tokens && narrow.logprobs == greedy.logprobs);
  // `score` gives the same log-probs.
  Json request = verb_request("score");
  request.set("state", state);
  request.set("temperature", 0.8);
  Tokens transcript(20, 3);
  transcript.values.insert(transcript.values.end(), greedy.tokens.begin(), greedy.tokens.end());
  const OutgoingArray arrays[] = {transcript.array()};
  const Answer scored = engine.call(std::move(request), arrays);
  CHECK(scored.logprobs.size() == 59 && std::equal(greedy.logprobs.begin(), greedy.logprobs.end(), scored.logprobs.begin() + 19));

  CHECK(generate(engine, state, {{"top_p", 0}}).error() == "BadInput: top_p must be above 0 and at most 1");
  CHECK(generate(engine, state, {{"top_k", 0}}).error() == "BadInput: top_k must be a whole number from 1 to 71");
}

}  // namespace

int main() {
  a_generation_ends_with_the_token_that_completes_a_stop_string();
  a_vocabulary_is_forgotten_when_the_models_vocabulary_size_changes();
  truncated_sampling_reports_logprobs_of_the_whole_distribution();
  return test::finish();
}
