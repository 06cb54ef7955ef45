// Carries out each verb (docs/engine-protocol.md, "Verbs"), on the engine's thread. An error in a verb becomes its reply. Invariants: an
// update with the last applied `step_id` gets the same answer as before and changes nothing (R12); the state changes by one exchange of a
// pointer, after everything that may fail.
// defines: Verbs, VerbOptions
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "backend/cpu_backend.h"
#include "base/thread_pool.h"
#include "serve/generation/generations.h"
#include "serve/policy/erring_device.h"
#include "serve/policy/held_state.h"
#include "serve/policy/loader.h"
#include "serve/policy/memory_guard.h"
#include "serve/protocol/replies.h"
#include "serve/protocol/request.h"
#include "serve/policy/saver.h"
#include "serve/policy/updates.h"
#include "serve/generation/work_clock.h"

namespace longhaul {

struct VerbOptions {
  // Allows the verb `fault`.
  bool test_faults = false;
  MakeBackend make_backend = make_cpu_backend;
  // Called on another thread when a save has ended.
  std::function<void()> save_ended;
};

class Verbs {
 public:
  Verbs(VerbOptions options, Replies& replies, StateHolder& held, WorkClock& clock);

  // Whether the request must wait until running generations and saves have ended (R15).
  bool must_wait(const Request& request) const;
  void handle(const Request& request);

  // True if generations have something to compute.
  bool ready() const { return generations_.ready(); }
  // Samples one more token for each running generation.
  void step() { generations_.step(*held_.get()->policy, *backend_); }
  // Answers cancelled generations.
  void drop_cancelled() { generations_.drop_cancelled(); }

  // True once `shutdown` has been answered.
  bool shutting_down() const { return shutting_down_; }
  void finish() { saver_.join(); }

  // May be called on any thread.
  const GenerationCounters& generation_counters() const { return generations_.counters(); }
  std::uint64_t updates() const { return updates_done_; }

 private:
  // The work that a verb waits for before it begins.
  enum class Waits { never, for_save, for_all };
  struct Verb {
    const char* name;
    void (Verbs::*run)(const Request& request);
    Waits waits;
    // Refused once the device has erred; what was computed before may still be saved.
    bool computes = false;
  };
  static const Verb* find(const std::string& name);

  void hello(const Request& request);
  void load(const Request& request);
  void load_hf_folder(const Request& request);
  void load_weights_file(const Request& request);
  void load_state_file(const Request& request);
  void set_reference(const Request& request);
  void save_state_file(const Request& request);
  void save_weights_file(const Request& request);
  void export_folder(const Request& request);
  void set_vocabulary(const Request& request);
  void tell_held(const Request& request);
  void generate(const Request& request);
  void score_tokens(const Request& request);
  void update(const Request& request);
  void fault(const Request& request);
  void shutdown(const Request& request);

  using LoadKind = LoadedModel (Loader::*)(const Request& request) const;
  void load_model(const Request& request, LoadKind kind);
  Loader loader_for(const Request& request);
  void exchange(std::shared_ptr<const HeldState> next) noexcept;
  // Computes with so many threads from now on.
  void use_threads(int threads);
  // Holds these reference weights from now on.
  void refer_to(Reference reference);
  // Reports progress of the current work; a test can make memory run out here.
  void advance();
  // The held state. Throws RequestError if no state is held.
  std::shared_ptr<const HeldState> require_model(const Request& request) const;
  // The held state, which must be the one that the request names.
  std::shared_ptr<const HeldState> require_state(const Request& request) const;
  // On the saver's thread, before the host's arrays are written. Throws DeviceDiffers if they are not what a device has hashed.
  void check_copy(const HeldState& held);
  // The held state, including the digest of its weights.
  std::shared_ptr<const HeldState> with_weights_digest(std::shared_ptr<const HeldState> held);

  VerbOptions options_;
  Replies& replies_;
  StateHolder& held_;
  WorkClock& clock_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  MemoryGuard memory_;
  Generations generations_;
  Updates updates_;
  ErringDevice erring_device_;  // before the saver, whose thread notes there
  Saver saver_;
  Reference reference_;
  bool greeted_ = false;
  bool shutting_down_ = false;
  bool aborts_after_update_ = false;
  // Calls of `advance` left before memory runs out, for tests; negative: no limit.
  std::atomic<int> advances_left_{-1};
  std::atomic<std::uint64_t> updates_done_{0};
};

}  // namespace longhaul
