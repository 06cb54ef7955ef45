// A fixed set of threads for short parallel loops. Waiting spins for about 20 µs and then sleeps: the engine shares its
// cores with other processes, so it never spins without bound.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace longhaul {

class ThreadPool {
 public:
  /// `threads` counts the calling thread; 1 starts none. Throws std::invalid_argument below 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  /// Calls fn(i) for every i in [0, n), on any thread, in any order, and returns when all are done.
  /// The first exception is rethrown after the loop. One loop at a time; fn must not start another on the same pool.
  template <class Fn>
  void parallel_for(size_t n, Fn&& fn) {
    using Body = std::remove_reference_t<Fn>;
    run(n, [](void* body, size_t i) { (*static_cast<Body*>(body))(i); }, const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* body, size_t index);
  void run(size_t n, Call call, void* body);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
