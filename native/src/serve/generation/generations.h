// The generations of the held state: requests become work for the scheduler, finished work becomes replies. On the engine's thread; the
// counters on any.
// defines: Generations
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "serve/protocol/replies.h"
#include "serve/protocol/request.h"
#include "serve/generation/scheduler.h"

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

  // For stop strings, until a model with another vocabulary is prepared. Running generations keep the one they began with.
  void set_vocabulary(std::shared_ptr<const Vocabulary> vocabulary) { vocabulary_ = std::move(vocabulary); }

  bool idle() const { return !scheduler_ || scheduler_->idle(); }
  // True if there is something to compute now: a peer that does not read stops admission, never running generations.
  bool ready() const { return !idle() && (scheduler_->has_running() || !replies_.blocked()); }

  // Answered by a later `step`. Throws RequestError.
  void submit(const Request& request, const Policy& policy);
  // Ends and answers those with a raised flag.
  void drop_cancelled();
  // One more token for each running generation.
  void step(const Policy& policy, ThreadPool& pool);

  const GenerationCounters& counters() const { return counters_; }

 private:
  Generation read(const Request& request, const Policy& policy) const;
  void read_stops(const Request& request, Generation& generation) const;
  void answer(const Finished& finished);

  Replies& replies_;
  std::size_t cache_bytes_ = std::size_t{256} << 20;
  GenerationCounters counters_;
  Architecture architecture_;  // that `scheduler_` was made for
  std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace longhaul
