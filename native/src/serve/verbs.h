// What each verb does (docs/engine-protocol.md, "Verbs"), on the engine's thread. Whatever goes wrong in one becomes its reply.
// Invariants: an update with the last applied `step_id` answers as before and changes nothing (R12); the state changes by one
// exchange of a pointer, with everything that may fail behind it.
// defines: Verbs, VerbOptions
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "serve/generations.h"
#include "serve/held_state.h"
#include "serve/replies.h"
#include "serve/request.h"
#include "serve/saver.h"
#include "serve/work_clock.h"

namespace longhaul {

struct VerbOptions {
  // Allows the verb `fault`.
  bool test_faults = false;
  // Called on another thread when a save has ended.
  std::function<void()> save_ended;
};

class Verbs {
 public:
  Verbs(VerbOptions options, Replies& replies, StateHolder& held, WorkClock& clock);

  // Whether the request must wait for generations and saves that run (R15).
  bool must_wait(const Request& request) const;
  void handle(const Request& request);

  // Generations have something to compute.
  bool ready() const { return generations_.ready(); }
  // One token more for each generation that runs.
  void step() { generations_.step(*held_.get()->policy, *pool_); }

  // After `shutdown` was answered.
  bool shutting_down() const { return shutting_down_; }
  void finish() { saver_.join(); }

  // On any thread.
  const GenerationCounters& generation_counters() const { return generations_.counters(); }
  std::uint64_t updates() const { return updates_; }

 private:
  void dispatch(const Request& request);
  void hello(const Request& request);
  void load(const Request& request);
  void load_state_file(const Request& request);
  void install(std::unique_ptr<Policy> policy, std::string digest, std::uint32_t id);
  void exchange(std::shared_ptr<const HeldState> next) noexcept;
  void save(const Request& request);
  void tell_held(const Request& request);
  void score_tokens(const Request& request);
  void update(const Request& request);
  void fault(const Request& request);
  // The state that the request names, which must be the one that is held.
  std::shared_ptr<const HeldState> require_state(const Request& request) const;

  VerbOptions options_;
  Replies& replies_;
  StateHolder& held_;
  WorkClock& clock_;
  Generations generations_;
  Saver saver_;
  std::unique_ptr<ThreadPool> pool_;
  bool greeted_ = false;
  bool shutting_down_ = false;
  bool aborts_after_update_ = false;
  std::atomic<std::uint64_t> updates_{0};
};

}  // namespace longhaul
