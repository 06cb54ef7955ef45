// The generations of the state that is held: requests become work for the scheduler, finished work becomes replies.
// On the engine's thread; the counters on any.
// defines: Generations
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "serve/held_state.h"
#include "serve/replies.h"
#include "serve/request.h"
#include "serve/scheduler.h"

namespace longhaul {

class Generations {
 public:
  explicit Generations(Replies& replies) : replies_(replies) {}

  // Bound of the KV cache of the next architecture.
  void set_cache_bytes(std::size_t bytes) { cache_bytes_ = bytes; }

  // Makes room for states of this architecture. Only while idle.
  void prepare(const Architecture& architecture);
  // The weights changed: nothing in the cache is valid. Only while idle, after `prepare`.
  void forget_cache() noexcept { scheduler_->forget_cache(); }

  bool idle() const { return !scheduler_ || scheduler_->idle(); }
  // There is something to compute now: a peer that does not read stops admission, never what runs.
  bool ready() const { return !idle() && (scheduler_->has_running() || !replies_.blocked()); }

  // Answered by a later `step`. Throws RequestError.
  void submit(const Request& request, const Policy& policy);
  // One token more for each that runs.
  void step(const Policy& policy, ThreadPool& pool);

  const GenerationCounters& counters() const { return counters_; }

 private:
  void answer(Finished& finished);

  Replies& replies_;
  std::size_t cache_bytes_ = std::size_t{256} << 20;
  GenerationCounters counters_;
  Architecture architecture_;  // that `scheduler_` was made for
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace longhaul
