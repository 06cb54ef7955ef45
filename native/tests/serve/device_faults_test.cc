// A device that computes one wrong value does not train: it is refused at the start, and noticed in an update. One whose driver reports an
// error ends the process.
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
    require_cpu_bits(*make_faulty(pool), pool);
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
  }
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
  an_error_of_the_driver_ends_the_process();
  std::filesystem::remove_all(folder);
  return test::finish();
}
