// How the engine process ends because of a fault, a peer or the machine, as seen from outside. Also tests that the engine continues when
// memory runs out during its work.
#include <fcntl.h>

#include "support/checks.h"
#include "support/forked_engine.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const auto folder = std::filesystem::temp_directory_path() / ("longhaul-crash-" + std::to_string(getpid()));
constexpr int mini_batch_count = 2;

EngineOptions with_faults() { return {.prepare = [] {}, .test_faults = true}; }

WrittenBatch batch_for(const std::string& state) {
  const OwnedBatch batch = group_batch(tiny_architecture().vocab_size, mini_batch_count, 2, 9, 2, 6);
  return write_batch((folder / state.substr(0, 16)).string(), batch, state, mini_batch_count);
}

bool died_by(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
bool exited_with(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

void faults_need_the_flag() {
  ForkedEngine engine;
  engine.start();
  CHECK(engine.call(fault_request("abort")).error() == "BadInput: unknown verb fault");
  ForkedEngine willing(with_faults());
  willing.start();
  CHECK(willing.call(fault_request("earthquake")).error() == "BadInput: unknown fault earthquake");
}

void an_abort_and_a_segfault_end_it_without_an_answer() {
  for (const auto& [kind, signal] : {std::pair{"abort", SIGABRT}, std::pair{"segfault", SIGSEGV}}) {
    ForkedEngine engine(with_faults());
    engine.start();
    CHECK(!engine.call(fault_request(kind)).alive);
    CHECK(died_by(engine.end(), signal));
  }
}

void an_abort_after_an_update_sends_no_reply() {
  ForkedEngine engine(with_faults());
  const std::string state = engine.start();
  CHECK(engine.call(fault_request("abort_after_update")).ok());
  CHECK(!engine.call(update_request(state, batch_for(state), mini_batch_count, "first")).alive);
  CHECK(died_by(engine.end(), SIGABRT));
}

void half_a_frame_is_no_answer() {
  ForkedEngine engine(with_faults());
  engine.start();
  CHECK(!engine.call(fault_request("half_frame")).alive);
  CHECK(exited_with(engine.end(), 70));
}

void a_hanging_engine_answers_nothing_until_it_is_continued() {
  ForkedEngine engine(with_faults());
  engine.start();
  engine.send(50, fault_request("hang"));
  int status = 0;
  CHECK(waitpid(engine.pid(), &status, WUNTRACED) == engine.pid() && WIFSTOPPED(status));
  engine.send(51, verb_request("stats"));
  CHECK(!engine.receive(200).alive);
  // The engine continues where it was stopped.
  kill(engine.pid(), SIGCONT);
  CHECK(engine.receive().ok() && engine.receive().ok());
}

void stats_tell_how_long_a_stall_lasts() {
  ForkedEngine engine(with_faults());
  engine.start();
  engine.send(50, fault_request("stall"));
  double busy = 0;
  for (int i = 0; i < 200 && busy < 50; ++i) {
    usleep(5000);
    busy = engine.stat("busy_ms");
  }
  CHECK(busy >= 50);
}

void a_broken_stream_ends_it_with_a_reason() {
  ForkedEngine half;
  half.start();
  const auto frame = encode_frame(9, verb_request("stats"));
  half.write_all({reinterpret_cast<const char*>(frame.data()), frame.size() - 3});
  half.hang_up();
  CHECK(exited_with(half.end(), 3));
  CHECK(half.errors().find("end of file within a frame") != std::string::npos);
  ForkedEngine whole;
  whole.start();
  whole.hang_up();
  CHECK(exited_with(whole.end(), 0));
}

// After the end of file, nobody is left to read the result of the work.
void an_end_of_file_ends_the_engine_during_work() {
  ForkedEngine engine(with_faults());
  engine.start();
  engine.send(50, fault_request("stall"));
  CHECK(engine.stat("updates") == 0);
  engine.hang_up();
  CHECK(exited_with(engine.end(), 0));
}

void memory_that_runs_out_in_an_update_changes_nothing() {
  ForkedEngine undisturbed;
  const std::string state = undisturbed.start();
  const WrittenBatch batch = batch_for(state);
  const std::string after = undisturbed.call(update_request(state, batch, mini_batch_count, "first")).state();
  for (const std::int64_t advances : {0, 3, 7}) {
    ForkedEngine engine(with_faults());
    CHECK(engine.start() == state);
    Json fault = fault_request("out_of_memory");
    fault.set("after", advances);
    CHECK(engine.call(std::move(fault)).ok());
    const Answer hit = engine.call(update_request(state, batch, mini_batch_count, "first"));
    CHECK(hit.error() == "OutOfMemory: not enough memory for update" && hit.state() == state);
    const Answer again = engine.call(update_request(state, batch, mini_batch_count, "first"));
    CHECK(again.ok() && again.state() == after);
  }
}

void memory_that_runs_out_in_a_load_leaves_what_is_held() {
  ForkedEngine engine(with_faults());
  const std::string state = engine.start();
  const std::string path = (folder / "state.safetensors").string();
  CHECK(engine.call(save_request(state, path)).ok());
  const std::string other = engine.call(ForkedEngine::load_request({{"seed", 8}})).state();
  CHECK(other.size() == 64 && other != state);
  CHECK(engine.call(fault_request("out_of_memory")).ok());
  Json load = verb_request("load_state");
  load.set("path", path);
  const Answer hit = engine.call(load);
  CHECK(hit.error() == "OutOfMemory: not enough memory for load_state" && hit.state() == other);
  const Tokens tokens(10, 1);
  const OutgoingArray arrays[] = {tokens.array()};
  CHECK(engine.call(generate_request(other, 1, 5), arrays).ok());
  CHECK(engine.call(load).state() == state);
}

// Runs the whole program, started by a process that is then killed. The other end of the socket stays open, so there is no end of file.
void the_engine_dies_with_its_parent() {
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  int ends[2], told[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && pipe(told) == 0);
  std::fflush(nullptr);
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t engine = fork();
    if (engine == 0) {
      const std::string fd = std::to_string(ends[1]);
      execl(ENGINE_BINARY, "longhaul-engine", "--fd", fd.c_str(), static_cast<char*>(nullptr));
      _exit(9);
    }
    [[maybe_unused]] const ssize_t wrote = write(told[1], &engine, sizeof engine);
    while (true) pause();
  }
  pid_t engine = -1;
  CHECK(read(told[0], &engine, sizeof engine) == sizeof engine);
  // The answer shows that the engine has started up, and so has asked for the signal.
  const auto frame = encode_frame(1, verb_request("stats"));
  CHECK(write(ends[0], frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  pollfd answer{ends[0], POLLIN, 0};
  CHECK(poll(&answer, 1, 30'000) == 1);
  kill(parent, SIGKILL);
  int status = 0;
  CHECK(waitpid(parent, &status, 0) == parent);
  CHECK(waitpid(engine, &status, 0) == engine);
  CHECK(died_by(status, SIGKILL));
  for (const int fd : {ends[0], ends[1], told[0], told[1]}) close(fd);
}

}  // namespace

int main() {
  std::filesystem::create_directory(folder);
  faults_need_the_flag();
  an_abort_and_a_segfault_end_it_without_an_answer();
  an_abort_after_an_update_sends_no_reply();
  half_a_frame_is_no_answer();
  a_hanging_engine_answers_nothing_until_it_is_continued();
  stats_tell_how_long_a_stall_lasts();
  a_broken_stream_ends_it_with_a_reason();
  an_end_of_file_ends_the_engine_during_work();
  memory_that_runs_out_in_an_update_changes_nothing();
  memory_that_runs_out_in_a_load_leaves_what_is_held();
  the_engine_dies_with_its_parent();
  std::filesystem::remove_all(folder);
  return test::finish();
}
