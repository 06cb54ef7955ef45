#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace longhaul {

namespace {

constexpr auto spin_time = std::chrono::microseconds(20);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Spins until `ready` returns true; returns false after the spin time.
template <class Ready>
bool spin_until(Ready&& ready) {
  if (ready()) return true;
  const auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable loop_started, loop_finished;

  // Written under `mutex`. A waiting thread first spins on these values.
  std::atomic<uint64_t> generation{0};
  std::atomic<int> active{0};
  // Guarded by `mutex`. A worker that wakes after the loop has closed does not join it, so the caller never waits for a
  // worker that the machine has not scheduled.
  bool open = false;
  bool stopping = false;

  size_t n = 0;
  Call call = nullptr;
  void* body = nullptr;
  std::atomic<size_t> next{0};
  std::exception_ptr error;

  void work() {
    for (;;) {
      const size_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= n) return;
      try {
        call(body, index);
      } catch (...) {
        next.store(n, std::memory_order_relaxed);
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    }
  }

  void worker_main() {
    uint64_t seen = 0;
    for (;;) {
      spin_until([&] { return generation.load(std::memory_order_acquire) != seen; });
      {
        std::unique_lock lock(mutex);
        loop_started.wait(lock, [&] { return generation.load(std::memory_order_relaxed) != seen; });
        seen = generation.load(std::memory_order_relaxed);
        if (stopping) return;
        if (!open) continue;
        active.fetch_add(1, std::memory_order_relaxed);
      }
      work();
      std::lock_guard lock(mutex);
      if (active.fetch_sub(1, std::memory_order_release) == 1) loop_finished.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads < 1) throw std::invalid_argument("threads must be at least 1, not " + std::to_string(threads));
  for (int i = 1; i < threads; ++i) state_->workers.emplace_back([state = state_.get()] { state->worker_main(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->generation.fetch_add(1, std::memory_order_release);
  }
  state_->loop_started.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return int(state_->workers.size()) + 1; }

void ThreadPool::run(size_t n, Call call, void* body) {
  State& state = *state_;
  if (n <= 1 || state.workers.empty()) {
    for (size_t i = 0; i < n; ++i) call(body, i);
    return;
  }
  {
    std::lock_guard lock(state.mutex);
    state.n = n;
    state.call = call;
    state.body = body;
    state.error = nullptr;
    state.next.store(0, std::memory_order_relaxed);
    state.open = true;
    state.generation.fetch_add(1, std::memory_order_release);
  }
  state.loop_started.notify_all();
  state.work();
  const auto idle = [&] { return state.active.load(std::memory_order_acquire) == 0; };
  spin_until(idle);
  std::exception_ptr error;
  {
    std::unique_lock lock(state.mutex);
    state.open = false;
    state.loop_finished.wait(lock, idle);
    error = std::exchange(state.error, nullptr);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace longhaul
