// The engine's verbs. One thread owns the policy and runs every verb that touches it, in order of arrival; the reader's
// thread answers `stats` and `cancel` itself, so both work while an update runs.
// Invariants: the state changes only while no generation and no save runs (R15); an update with the last applied
// `step_id` answers as before and changes nothing (R12); every reply names incarnation and state.
// defines: Server, ServerOptions
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "serve/held_state.h"
#include "serve/mailbox.h"
#include "serve/request.h"
#include "serve/scheduler.h"
#include "wire/channel.h"

namespace longhaul {

struct ServerOptions {
  int fd = 3;
  // Allows the verb `fault`.
  bool test_faults = false;
};

class Server {
 public:
  explicit Server(const ServerOptions& options);

  // Serves until `shutdown`; answers the process's exit code. An end of file or a broken frame ends the process at once.
  int run();

 private:
  using Arrays = std::span<const OutgoingArray>;
  static constexpr std::size_t kMostUnsentBytes = std::size_t{64} << 20;

  // On the reader's thread.
  void receive(Frame frame);
  void cancel(const Request& request);
  void stats(std::uint32_t id);

  // On any thread.
  void reply(std::uint32_t id, Json fields, Arrays arrays = {});
  void refuse(std::uint32_t id, const std::string& code, const std::string& message);
  void progress(std::uint32_t id, Json fields);
  void send(std::uint32_t id, Json header, Arrays arrays);
  std::shared_ptr<const HeldState> held_state() const;

  // On the engine's thread.
  void handle_all();
  void handle(Request& request);
  static bool needs_quiet(const std::string& verb);
  bool quiet() const;
  void hello(const Request& request);
  void load(const Request& request);
  void load_state_file(const Request& request);
  void install(std::unique_ptr<Policy> policy, std::uint32_t id);
  void hold(std::shared_ptr<const HeldState> next) noexcept;
  void save(const Request& request);
  void held(const Request& request);
  void generate(Request& request);
  void score_tokens(const Request& request);
  void update(const Request& request);
  void fault(const Request& request);
  // The state that the request names, which must be the one that is held.
  std::shared_ptr<const HeldState> require_state(const Request& request) const;
  static void check_tokens(const Policy& policy, const std::vector<std::int32_t>& tokens);
  void answer(Finished& finished);
  void step();
  void join_saver();

  ServerOptions options_;
  std::string incarnation_;
  Mailbox mailbox_;
  std::optional<Request> deferred_;  // waits for quiet; nothing behind it is taken
  bool greeted_ = false;
  bool shutting_down_ = false;
  std::size_t cache_bytes_ = std::size_t{256} << 20;

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Scheduler> scheduler_;

  // A save writes beside generations.
  std::thread saver_;
  std::atomic<bool> saving_{false};

  enum class Fault { none, abort_after_update, half_frame };
  std::atomic<Fault> fault_{Fault::none};

  mutable std::mutex shared_;
  std::shared_ptr<const HeldState> held_;  // null before the first load; only the engine's thread exchanges it
  std::unordered_map<std::uint32_t, std::shared_ptr<std::atomic<bool>>> pending_;

  GenerationCounters generation_counters_;
  std::atomic<std::uint64_t> updates_{0};
  // Milliseconds of the steady clock when the engine's thread last got on; 0 while it waits for work.
  std::atomic<std::int64_t> alive_at_{0};

  std::unique_ptr<Channel> channel_;
};

}  // namespace longhaul
