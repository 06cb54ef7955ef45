// Everything at once: generations, saves, scores, cancellations and `stats`, with an update between them. Each request is answered exactly
// once, and no request sees half of the update. Built with -fsanitize=thread, this test finds races between the engine's threads.
#include <map>
#include <set>

#include "support/checks.h"
#include "support/forked_engine.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const auto folder = std::filesystem::temp_directory_path() / ("longhaul-traffic-" + std::to_string(getpid()));

void every_request_is_answered_once_and_sees_one_state(int threads) {
  ForkedEngine engine;
  const std::string before = engine.start(threads);
  constexpr int mini_batches = 2;
  const WrittenBatch batch = write_batch((folder / "batch").string(),
                                         group_batch(tiny_architecture().vocab_size, mini_batches, 8, 9, 2, 6), before, mini_batches);
  std::set<std::uint32_t> open;
  std::uint32_t id = 100;
  const auto send = [&](Json request, std::span<const OutgoingArray> arrays = {}) {
    open.insert(++id);
    engine.send(id, std::move(request), arrays);
    return id;
  };
  const auto generate = [&](std::uint32_t sample, int most) {
    const Tokens tokens(40, sample % 3);
    const OutgoingArray arrays[] = {tokens.array()};
    return send(generate_request(before, sample, most), arrays);
  };
  std::vector<std::uint32_t> generations, cancelled, saves, late;
  for (std::uint32_t sample = 0; sample < 24; ++sample) {
    generations.push_back(generate(sample, 60));
    send(verb_request("stats"));
    if (sample % 6 == 0) saves.push_back(send(save_request(before, (folder / std::to_string(sample)).string())));
  }
  for (std::uint32_t sample = 24; sample < 30; ++sample) {
    cancelled.push_back(generate(sample, 200));
    Json cancel = verb_request("cancel");
    cancel.set("target", static_cast<std::int64_t>(cancelled.back()));
    send(std::move(cancel));
  }
  const std::uint32_t update = send(update_request(before, batch, mini_batches, "first"));
  for (std::uint32_t sample = 30; sample < 34; ++sample) late.push_back(generate(sample, 5));
  for (int i = 0; i < 8; ++i) send(verb_request("stats"));

  std::map<std::uint32_t, Answer> answers;
  while (!open.empty()) {
    Answer answer = engine.receive();
    CHECK(answer.alive);
    if (!answer.alive) return;
    CHECK(open.erase(answer.id) == 1);
    answers[answer.id] = std::move(answer);
  }
  const std::string after = answers[update].state();
  CHECK(answers[update].ok() && after != before);
  const std::vector<Json>& progress = answers[update].progress;
  CHECK(progress.size() > mini_batches && *progress.back().find("done")->number() == *progress.back().find("total")->number());
  for (std::size_t i = 1; i < progress.size(); ++i) {
    CHECK(*progress[i - 1].find("done")->number() < *progress[i].find("done")->number());
  }
  for (const std::uint32_t one : generations) CHECK(answers[one].ok() && answers[one].state() == before);
  for (const std::uint32_t one : saves) CHECK(answers[one].ok() && answers[one].state() == before);
  for (const std::uint32_t one : cancelled) CHECK(answers[one].error().starts_with("Cancelled"));
  for (const std::uint32_t one : late) CHECK(answers[one].error().starts_with("WrongState"));
  CHECK(engine.stat("updates") == 1);
  CHECK(engine.stat("running") == 0 && engine.stat("waiting") == 0);
  CHECK(engine.call(verb_request("shutdown")).ok());
  CHECK(engine.end() == 0);
}

}  // namespace

int main() {
  std::filesystem::create_directory(folder);
  for (const int threads : {1, 2}) every_request_is_answered_once_and_sees_one_state(threads);
  std::filesystem::remove_all(folder);
  return test::finish();
}
