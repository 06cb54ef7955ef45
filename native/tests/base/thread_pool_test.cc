#include "base/thread_pool.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/check.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

void every_index_runs_once() {
  ThreadPool pool(4);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::atomic<int>> counts(size_t(round % 40));
    pool.parallel_for(counts.size(), [&](size_t i) { ++counts[i]; });
    for (const auto& count : counts) check_equal(count.load(), 1, "calls");
  }
}

void loops_after_sleep_work() {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.parallel_for(10, [&](size_t) { ++calls; });
  }
  check_equal(calls.load(), 200, "calls");
}

void exception_reaches_the_caller_and_the_pool_lives() {
  ThreadPool pool(2);
  check_throws<std::runtime_error>(
      [&] {
        pool.parallel_for(100, [](size_t i) {
          if (i == 37) throw std::runtime_error("index 37");
        });
      },
      "index 37", "loop");
  std::atomic<int> calls{0};
  pool.parallel_for(10, [&](size_t) { ++calls; });
  check_equal(calls.load(), 10, "calls after the exception");
}

void idle_threads_sleep() {
  ThreadPool pool(4);
  pool.parallel_for(8, [](size_t) {});
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used = double(after.tv_sec - before.tv_sec) + 1e-9 * double(after.tv_nsec - before.tv_nsec);
  check(used < 0.02, "an idle pool used " + std::to_string(used) + " s of processor time in 0.2 s");
}

void no_threads_is_refused() {
  check_throws<std::invalid_argument>([] { ThreadPool pool(0); }, "threads must be at least 1", "pool of none");
}

}  // namespace

int main() {
  return run({{"every index runs once", every_index_runs_once},
              {"loops after sleep work", loops_after_sleep_work},
              {"an exception reaches the caller and the pool stays usable", exception_reaches_the_caller_and_the_pool_lives},
              {"idle threads sleep", idle_threads_sleep},
              {"no threads is refused", no_threads_is_refused}});
}
