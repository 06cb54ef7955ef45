// The generations of the held state: turns requests into work for the scheduler and finished work into replies. Runs on the engine's
// thread; the counters may be read on any thread.
// defines: Generations
#pragma once

#include <memory>

#include "serve/protocol/replies.h"
#include "serve/protocol/request.h"
#include "serve/generation/scheduler.h"

namespace longhaul {

class Generations {
 public:
  explicit Generations(Replies& replies) : replies_(replies) {}

  // Bound of the KV cache in bytes; applies from the next architecture that is prepared.
  void set_cache_bytes(std::size_t bytes) { cache_bytes_ = bytes; }

  // Frees the cache: before the backend that made it goes. Call it only while idle.
  void forget() { scheduler_ = nullptr; }
  // Makes room for states of this architecture. Call it only while idle.
  void prepare(const Architecture& architecture, Backend& backend);
  // Forgets all cached blocks, because the weights changed. Call it only while idle, after `prepare`.
  void forget_cache() noexcept { scheduler_->forget_cache(); }

  // The vocabulary for stop strings, until a model with another vocabulary is prepared. Running generations keep the one they started with.
  void set_vocabulary(std::shared_ptr<const Vocabulary> vocabulary) { vocabulary_ = std::move(vocabulary); }

  bool idle() const { return !scheduler_ || scheduler_->idle(); }
  // True if there is something to compute now. A peer that does not read stops admission, but never running generations.
  bool ready() const { return !idle() && (scheduler_->has_running() || !replies_.blocked()); }

  // Starts a generation; a later `step` answers it. Throws RequestError.
  void submit(const Request& request, const Policy& policy);
  // Ends and answers the generations whose cancellation flag is set.
  void drop_cancelled();
  // Samples one more token for each running generation.
  void step(const Policy& policy, Backend& backend);

  const GenerationCounters& counters() const { return counters_; }

 private:
  Generation read(const Request& request, const Policy& policy) const;
  void read_stops(const Request& request, Generation& generation) const;
  void answer(const Finished& finished);

  Replies& replies_;
  std::size_t cache_bytes_ = std::size_t{256} << 20;
  GenerationCounters counters_;
  Architecture architecture_;  // the architecture that `scheduler_` was made for
  std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace longhaul
