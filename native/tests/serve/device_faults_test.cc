// A device that computes a wrong value does not train: it is refused at the start, and its error is noticed in an update. An error of the driver
// ends the process.
#include <limits>

#include "serve/policy/spot_check.h"
#include "serve/selftest.h"
#include "support/checks.h"
#include "support/faulty_backend.h"
#include "support/forked_engine.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const auto folder = std::filesystem::temp_directory_path() / ("longhaul-device-faults-" + std::to_string(getpid()));

Err err = Err::nothing;

std::unique_ptr<Backend> make_faulty(ThreadPool& pool) { return std::make_unique<FaultyBackend>(make_cpu_backend(pool), err); }

std::string refusal_of(Err which) {
  err = which;
  ThreadPool pool(1);
  try {
    require_oracle_bits(*make_faulty(pool), pool);
  } catch (const RequestError& error) {
    return std::string(error.code) + ": " + error.what();
  }
  return "";
}

void a_wrong_value_is_refused_at_the_start() {
  CHECK(refusal_of(Err::nothing).empty());
  const auto names = [](const std::string& text, const char* operation) {
    return text.starts_with("DeviceDiffers: faulty device") && text.find(operation) != std::string::npos;
  };
  CHECK(names(refusal_of(Err::draw), "qwen3, sampling: log-prob 0"));
  CHECK(names(refusal_of(Err::logprob), "qwen3, scoring"));
  CHECK(names(refusal_of(Err::step), "qwen3, a step of training"));
  CHECK(names(refusal_of(Err::copy), "copied to the host as"));
}

struct Updated {
  ForkedEngine engine;
  std::string before;
  Answer answer;

  explicit Updated(Err which, const std::string& step_id = "first") : engine({.make_backend = (err = which, make_faulty)}) {
    before = engine.start();
    const OwnedBatch batch = group_batch(tiny_architecture().vocab_size, 2, 2, 9, 2, 6);
    const WrittenBatch written = write_batch((folder / step_id).string(), batch, before, 2);
    answer = engine.call(update_request(before, written, 2, step_id));
  }
};

void a_wrong_log_prob_is_not_applied() {
  // The step id chooses the sample.
  for (const char* step_id : {"first", "second", "third", "fourth"}) {
    CHECK(Updated(Err::nothing, step_id).answer.ok());
    Updated wrong(Err::logprob, step_id);
    CHECK(wrong.answer.error().starts_with("DeviceDiffers: this update is not applied: the log-prob of token "));
    CHECK(wrong.answer.state() == wrong.before);
    const std::vector<std::int32_t> prompt{1, 2, 3};
    const OutgoingArray arrays[] = {{"tokens", DType::i32, {3}, raw_bytes(std::span<const std::int32_t>(prompt))}};
    // The device is not trusted any more; the state can still be saved.
    CHECK(wrong.engine.call(generate_request(wrong.before, 0, 4), arrays).error() == wrong.answer.error());
    CHECK(wrong.engine.call(save_request(wrong.before, (folder / "state.safetensors").string())).ok());
  }
}

// A prompt with two samples. Flips one log-prob after the other, and returns the targets for which the check of this choice noticed it.
std::string noticed(const Policy& policy, std::uint64_t choice, float wrong) {
  MiniBatch mini;
  const std::vector<std::int32_t> prompt = random_tokens(5, policy.architecture().vocab_size, 1);
  const int root = mini.forest.add(-1, prompt);
  std::vector<std::int32_t> tokens;
  for (const int sample : {0, 1}) {
    const std::vector<std::int32_t> own = random_tokens(3, policy.architecture().vocab_size, std::uint32_t(2 + sample));
    const int first = mini.forest.rows();
    mini.forest.add(root, own);
    for (int i = 0; i < 3; ++i) {
      mini.target_rows.push_back(i == 0 ? 4 : first + i - 1);
      mini.target_samples.push_back(sample);
      tokens.push_back(own[std::size_t(i)]);
    }
  }
  mini.target_tokens = tokens;
  ThreadPool pool(1);
  std::vector<float> right(tokens.size());
  CpuBackend cpu(pool);
  const auto passes = cpu.make_training();
  passes->prepare({}, mini.forest.rows());
  passes->begin(policy, mini.forest, mini.target_rows, mini.target_tokens, 0.7f, {}, {});
  passes->logprobs(right);
  require_same_logprobs(policy, mini, right, 0.7, choice, cpu_numerics.oracle, pool, {});
  std::string text;
  for (std::size_t t = 0; t < right.size(); ++t) {
    std::vector<float> seen = right;
    seen[t] = wrong == 0 ? flipped(seen[t]) : wrong;
    try {
      require_same_logprobs(policy, mini, seen, 0.7, choice, cpu_numerics.oracle, pool, {});
      text += '-';
    } catch (const WrongValue&) {
      text += 'x';
    }
  }
  return text;
}

void one_wrong_log_prob_on_the_chosen_path_is_noticed() {
  const Policy policy = random_policy(tiny_architecture(), 0.2, 7);
  // Both samples' first targets are of the prompt's last row.
  const char* expected[] = {"x--x--", "xx-x--", "xxxx--", "x--x--", "x--xx-", "x--xxx"};
  for (std::uint64_t chosen = 0; chosen < 6; ++chosen) CHECK(noticed(policy, chosen, 0) == expected[chosen]);
  CHECK(noticed(policy, 2, std::numeric_limits<float>::quiet_NaN()) == expected[2]);
}

void two_nans_are_equal() {
  const Policy right = random_policy(tiny_architecture(), 0.2, 7);
  Policy policy(right);
  for (float& value : policy.trained()) value = std::numeric_limits<float>::quiet_NaN();
  policy.changed();
  ThreadPool pool(1);
  MiniBatch mini;
  const std::vector<std::int32_t> tokens{1, 2, 3};
  mini.forest.add(-1, tokens);
  mini.target_rows = {1};
  mini.target_samples = {0};
  mini.target_tokens = std::span(tokens).subspan(2);
  for (const std::uint32_t bits : {0x7fffffffu, 0xffc00000u})
    require_same_logprobs(policy, mini, std::vector<float>{std::bit_cast<float>(bits)}, 1, 0, cpu_numerics.oracle, pool, {});
}

void a_wrong_gradient_is_not_applied() {
  Updated wrong(Err::gradient);
  CHECK(wrong.answer.error().starts_with("DeviceDiffers: this update is not applied: element [0, 0] of the gradient"));
  CHECK(wrong.answer.state() == wrong.before);
}

void what_was_copied_wrongly_is_not_trained() {
  Updated wrong(Err::hold);
  CHECK(wrong.answer.error().starts_with("DeviceDiffers: faulty device has the state "));
  CHECK(wrong.answer.state() == wrong.before);
}

void what_was_sent_wrongly_is_not_written() {
  Updated wrong(Err::copy);
  CHECK(wrong.answer.ok());
  const std::string path = (folder / "wrong.safetensors").string();
  for (int time = 0; time < 2; ++time)
    CHECK(wrong.engine.call(save_request(wrong.answer.state(), path)).error().starts_with("DeviceDiffers: the GPU has state "));
  CHECK(!std::filesystem::exists(path));
  const std::vector<std::int32_t> prompt{1, 2, 3};
  const OutgoingArray arrays[] = {{"tokens", DType::i32, {3}, raw_bytes(std::span<const std::int32_t>(prompt))}};
  CHECK(wrong.engine.call(generate_request(wrong.answer.state(), 0, 4), arrays).error().starts_with("DeviceDiffers: the GPU has state "));
  Json weights = verb_request("held");
  weights.set("weights", true);
  CHECK(wrong.engine.call(weights).error().starts_with("DeviceDiffers: "));
  Json reference = verb_request("set_reference");
  reference.set("from", "held");
  CHECK(wrong.engine.call(reference).error().starts_with("DeviceDiffers: "));
}

void an_error_of_the_driver_ends_the_process() {
  Updated lost(Err::lost);
  CHECK(!lost.answer.alive);
  const int status = lost.engine.end();
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  CHECK(lost.engine.errors().find("an illegal memory access was encountered. The engine ends") != std::string::npos);
}

}  // namespace

int main() {
  std::filesystem::create_directory(folder);
  a_wrong_value_is_refused_at_the_start();
  a_wrong_log_prob_is_not_applied();
  one_wrong_log_prob_on_the_chosen_path_is_noticed();
  two_nans_are_equal();
  a_wrong_gradient_is_not_applied();
  what_was_copied_wrongly_is_not_trained();
  what_was_sent_wrongly_is_not_written();
  an_error_of_the_driver_ends_the_process();
  std::filesystem::remove_all(folder);
  return test::finish();
}
