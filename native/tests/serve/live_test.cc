// Thousands of generations at once. Each gets the same answer as when it runs alone; a cancellation waits for the current pass at most; a
// peer that does not read stops admission, but never running generations; and waiting generations cost nothing.
#include <chrono>
#include <map>
#include <set>

#include "support/cpu.h"
#include "support/checks.h"
#include "support/forked_engine.h"
#include "serve/generation/scheduler.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr std::uint32_t live_generations = 4000;

// The smallest possible model: thousands of passes take a moment.
Architecture smallest(int positions = 128) {
  Architecture architecture = tiny_architecture();
  architecture.hidden_size = 16;
  architecture.intermediate_size = 16;
  architecture.num_hidden_layers = 1;
  architecture.num_attention_heads = 1;
  architecture.num_key_value_heads = 1;
  architecture.head_dim = 16;
  architecture.max_position_embeddings = positions;
  return architecture;
}

std::string start(ForkedEngine& engine, std::int64_t cache_bytes, int positions = 128) {
  engine.greet(2, {{"kv_cache_bytes", cache_bytes}});
  return engine.call(ForkedEngine::load_request({{"architecture", architecture_json(smallest(positions))}})).state();
}

// More tokens than any of these tests waits for.
constexpr int endless = 200'000;

Json cancel_request(std::uint32_t target) {
  Json cancel = verb_request("cancel");
  cancel.set("target", static_cast<std::int64_t>(target));
  return cancel;
}

// Each group of eight samples shares a prompt.
void send_generation(ForkedEngine& engine, const std::string& state, std::uint32_t sample, int most) {
  const Tokens tokens(40, sample / 8);
  const OutgoingArray arrays[] = {tokens.array()};
  engine.send(1000 + sample, generate_request(state, sample, most), arrays);
}

void thousands_get_the_answers_that_they_get_alone() {
  ForkedEngine engine;
  // The cache has room for some hundreds of transcripts.
  const std::string state = start(engine, 8 << 20);
  for (std::uint32_t sample = 0; sample < live_generations; ++sample) send_generation(engine, state, sample, 20);
  std::map<std::uint32_t, Answer> answers;
  for (std::uint32_t i = 0; i < live_generations; ++i) {
    Answer answer = engine.receive();
    CHECK(answer.ok() && answer.tokens.size() == 20);
    if (!answer.alive) return;
    answers[answer.id] = std::move(answer);
  }
  CHECK(answers.size() == live_generations);
  CHECK(engine.stat("reused_tokens") > live_generations / 2 * 32);  // prompts are shared
  ForkedEngine alone;
  CHECK(start(alone, 0) == state);
  for (std::uint32_t sample = 0; sample < live_generations; sample += 397) {
    send_generation(alone, state, sample, 20);
    const Answer one = alone.receive();
    const Answer& other = answers[1000 + sample];
    CHECK(one.tokens == other.tokens && one.logprobs == other.logprobs);
  }
}

void all_of_thousands_can_be_cancelled_at_once() {
  ForkedEngine engine;
  const std::string state = start(engine, 8 << 20);
  for (std::uint32_t sample = 0; sample < live_generations; ++sample) send_generation(engine, state, sample, 80);
  std::set<std::uint32_t> open;
  for (std::uint32_t sample = 0; sample < live_generations; ++sample) {
    engine.send(10'000 + sample, cancel_request(1000 + sample));
    open.insert({1000 + sample, 10'000 + sample});
  }
  int cancelled = 0;
  while (!open.empty()) {
    const Answer answer = engine.receive();
    CHECK(answer.alive && open.erase(answer.id) == 1);
    if (!answer.alive) return;
    cancelled += answer.error().starts_with("Cancelled");
  }
  CHECK(cancelled > static_cast<int>(live_generations) / 2);
  CHECK(engine.stat("running") == 0 && engine.stat("waiting") == 0);
}

// Uses the scheduler directly, so that passes can be counted.
void half_of_thousands_can_be_cancelled_between_passes() {
  ThreadPool pool(1);
  const Policy policy = random_policy(smallest(), 0.2, 7);
  GenerationCounters counters;
  Scheduler scheduler(policy.architecture(), 8 << 20, counters, cpu(pool));
  std::vector<std::shared_ptr<std::atomic<bool>>> flags;
  for (std::uint32_t id = 1; id <= live_generations; ++id) {
    Generation generation;
    generation.id = id;
    generation.tokens = random_tokens(40, policy.architecture().vocab_size, id);
    generation.prompt_length = 40;
    generation.max_length = 120;
    generation.cancelled = flags.emplace_back(std::make_shared<std::atomic<bool>>(false));
    scheduler.submit(std::move(generation));
  }
  std::vector<Finished> finished;
  for (int i = 0; i < 5; ++i) scheduler.step(policy, cpu(pool), true, finished);
  CHECK(counters.running > 50 && counters.waiting > 1000 && counters.running + counters.waiting == live_generations);
  for (std::uint32_t i = 0; i < live_generations; i += 2) *flags[i] = true;
  finished.clear();
  scheduler.drop_cancelled(finished);
  CHECK(finished.size() == live_generations / 2 && counters.running + counters.waiting == live_generations / 2);
  for (const Finished& one : finished) CHECK(one.how == Finished::How::cancelled && one.generation.id % 2 == 1);
  finished.clear();
  while (!scheduler.idle()) scheduler.step(policy, cpu(pool), true, finished);
  CHECK(finished.size() == live_generations / 2);
  for (const Finished& one : finished) CHECK(one.how == Finished::How::length && one.generation.logprobs.size() == 80);
}

// The cache has room for about a dozen generations. The scheduler must not admit generations and send them back to the queue at once, again
// and again.
void a_small_cache_does_not_preempt_again_and_again() {
  ThreadPool pool(1);
  const Policy policy = random_policy(smallest(), 0.2, 7);
  GenerationCounters counters;
  Scheduler scheduler(policy.architecture(), 48 * KvCache::block_bytes(policy.architecture()), counters, cpu(pool));
  for (std::uint32_t id = 1; id <= 400; ++id) {
    Generation generation;
    generation.id = id;
    generation.tokens = random_tokens(40, policy.architecture().vocab_size, id);
    generation.prompt_length = 40;
    generation.max_length = 120;
    scheduler.submit(std::move(generation));
  }
  std::vector<Finished> finished;
  while (!scheduler.idle()) scheduler.step(policy, cpu(pool), true, finished);
  CHECK(finished.size() == 400);
  std::printf("%llu prefilled tokens, %llu preemptions\n", static_cast<unsigned long long>(counters.prefilled_tokens.load()),
              static_cast<unsigned long long>(counters.preemptions.load()));
  CHECK(counters.preemptions < 800);
  CHECK(counters.prefilled_tokens < 400 * 40 * 4);
}

// The pass that runs when the flag is set is the generation's last pass. The reply to the `stats` request that follows the cancellation
// says how many passes there had been.
void a_cancellation_waits_for_the_current_pass_at_most() {
  ForkedEngine engine;
  const std::string state = start(engine, 8 << 20, endless);
  for (std::uint32_t round = 0; round < 8; ++round) {
    const std::uint32_t generation = 1000 + round, cancel = 2000 + round, question = 3000 + round;
    const double before = engine.stat("passes");
    send_generation(engine, state, round, endless);
    while (engine.stat("passes") < before + 5) usleep(100);
    std::string stream;
    for (const auto& [id, request] : {std::pair{cancel, cancel_request(generation)}, std::pair{question, verb_request("stats")}}) {
      const auto frame = encode_frame(id, request);
      stream.append(reinterpret_cast<const char*>(frame.data()), frame.size());
    }
    engine.write_all(stream);
    double then = -1;
    std::set<std::uint32_t> open{generation, cancel, question};
    while (!open.empty()) {
      const Answer answer = engine.receive();
      CHECK(answer.alive && open.erase(answer.id) == 1);
      if (!answer.alive) return;
      if (answer.id == generation) CHECK(answer.error().starts_with("Cancelled"));
      if (answer.id == question) then = *answer.header.find("stats")->find("passes")->number();
    }
    const double more = engine.stat("passes") - then;
    CHECK(then > before && more <= 1);
  }
}

// The peer leaves more than 64 MiB of replies unread. `beside_another`: another generation is running meanwhile.
void a_peer_that_does_not_read_stops_admission(bool beside_another) {
  ForkedEngine engine;
  const std::string state = start(engine, 8 << 20, beside_another ? endless : 128);
  constexpr std::uint32_t questions = 200'000, flood = 1'000'000, other = 1999;
  if (beside_another) {
    send_generation(engine, state, other - 1000, endless);
    while (engine.stat("running") < 1) usleep(1000);
  }
  const double passes = engine.stat("passes");
  std::string stream;
  for (std::uint32_t i = 0; i < questions; ++i) {
    const auto frame = encode_frame(flood + i, verb_request("stats"));
    stream.append(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  engine.write_all(stream);
  for (std::uint32_t sample = 0; sample < 8; ++sample) send_generation(engine, state, sample, 20);
  // The engine has received all generations long before the last of these `stats` requests.
  constexpr std::uint32_t last = flood + questions + 19;
  for (std::uint32_t id = flood + questions; id <= last; ++id) {
    usleep(100'000);
    engine.send(id, verb_request("stats"));
  }
  std::uint32_t generated = 0;
  bool seen = false;
  for (std::uint32_t i = 0; i < questions + 28; ++i) {
    const Answer answer = engine.receive();
    CHECK(answer.ok());
    if (!answer.alive) return;
    generated += answer.tokens.size() == 20;
    if (answer.id != last) continue;
    const Json& stats = *answer.header.find("stats");
    CHECK(*stats.find("unsent_bytes")->number() > 64 << 20);
    CHECK(*stats.find("waiting")->number() == 8 && *stats.find("running")->number() == (beside_another ? 1 : 0));
    CHECK(beside_another ? *stats.find("passes")->number() > passes : *stats.find("passes")->number() == passes);
    seen = true;
  }
  // The replies have been read now, so the generations are admitted.
  CHECK(seen && generated == 8);
  if (!beside_another) return;
  CHECK(engine.stat("running") == 1);
  engine.send(last + 1, cancel_request(other));
  for (int i = 0; i < 2; ++i) {
    const Answer answer = engine.receive();
    CHECK(answer.id == last + 1 ? answer.ok() : answer.id == other && answer.error().starts_with("Cancelled"));
  }
}

// A pass of 1,000 rows takes the same time with 19,000 generations waiting as with none.
void waiting_generations_cost_nothing() {
  ThreadPool pool(1);
  const Policy policy = random_policy(smallest(), 0.2, 7);
  const auto seconds_with = [&](std::uint32_t live) {
    GenerationCounters counters;
    Scheduler scheduler(policy.architecture(), 64 << 20, counters, cpu(pool));
    for (std::uint32_t id = 1; id <= live; ++id) {
      Generation generation;
      generation.id = id;
      generation.tokens = random_tokens(4, policy.architecture().vocab_size, id);
      generation.prompt_length = 4;
      generation.max_length = 120;
      scheduler.submit(std::move(generation));
    }
    std::vector<Finished> finished;
    while (counters.running < Scheduler::most_running) scheduler.step(policy, cpu(pool), true, finished);
    double best = 1e9;
    for (int i = 0; i < 30; ++i) {
      const auto began = std::chrono::steady_clock::now();
      scheduler.step(policy, cpu(pool), true, finished);
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    return best;
  };
  const double alone = seconds_with(Scheduler::most_running), crowded = seconds_with(20'000);
  std::printf("a pass takes %.2f ms, with 19,000 waiting %.2f ms\n", alone * 1e3, crowded * 1e3);
  CHECK(crowded < 2 * alone + 1e-3);
}

}  // namespace

int main() {
  thousands_get_the_answers_that_they_get_alone();
  all_of_thousands_can_be_cancelled_at_once();
  half_of_thousands_can_be_cancelled_between_passes();
  a_small_cache_does_not_preempt_again_and_again();
  a_cancellation_waits_for_the_current_pass_at_most();
  for (const bool beside_another : {false, true}) a_peer_that_does_not_read_stops_admission(beside_another);
  waiting_generations_cost_nothing();
  return test::finish();
}
