#include "serve/verbs.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <new>

#include "ops/ops.h"
#include "serve/request_settings.h"
#include "serve/version.h"
#include "state/batch_file.h"
#include "state/digest.h"
#include "state/state_file.h"
#include "train/score.h"

namespace longhaul {
namespace {

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

Verbs::Verbs(VerbOptions options, Replies& replies, StateHolder& held, WorkClock& clock)
    : options_(std::move(options)),
      replies_(replies),
      held_(held),
      clock_(clock),
      generations_(replies),
      saver_(replies, options_.save_ended) {}

bool Verbs::must_wait(const Request& request) const {
  const std::string& verb = request.verb;
  if (verb == "save_state") return saver_.busy();
  const bool alone = verb == "load" || verb == "load_state" || verb == "update" || verb == "shutdown" || verb == "hello";
  return alone && (!generations_.idle() || saver_.busy());
}

void Verbs::handle(const Request& request) {
  try {
    dispatch(request);
  } catch (const RequestError& error) {
    replies_.refuse(request.id(), error.code, error.what());
  } catch (const BatchError& error) {
    replies_.refuse(request.id(), "BadBatch", error.what());
  } catch (const std::bad_alloc&) {
    replies_.refuse(request.id(), "OutOfMemory", "not enough memory for " + request.verb);
  } catch (const std::exception& error) {
    replies_.refuse(request.id(), "BadInput", error.what());
  }
}

void Verbs::dispatch(const Request& request) {
  if (*request.cancelled) throw RequestError("Cancelled", "cancelled before it began");
  if (request.verb == "hello") return hello(request);
  if (!greeted_) throw RequestError("BadInput", "the first verb must be hello");
  if (request.verb == "generate") return generations_.submit(request, *require_state(request)->policy);
  if (request.verb == "score") return score_tokens(request);
  if (request.verb == "update") return update(request);
  if (request.verb == "held") return tell_held(request);
  if (request.verb == "load") return load(request);
  if (request.verb == "load_state") return load_state_file(request);
  if (request.verb == "save_state") return save(request);
  if (request.verb == "fault") return fault(request);
  if (request.verb == "shutdown") {
    shutting_down_ = true;
    return replies_.reply(request.id(), {});
  }
  throw RequestError("BadInput", "unknown verb " + request.verb);
}

void Verbs::hello(const Request& request) {
  if (request.whole("protocol", 0, 1 << 30) != kProtocol) {
    throw RequestError("VersionMismatch", "this engine speaks protocol " + std::to_string(kProtocol));
  }
  if (request.frame.header.find("instruction_set") != nullptr) {
    const std::string wanted = request.text("instruction_set");
    bool known = false;
    for (const auto set : {ops::InstructionSet::scalar, ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
      if (wanted != ops::name(set)) continue;
      if (!ops::supported(set)) throw RequestError("BadInput", "this machine has no " + wanted);
      ops::set_instruction_set(set);
      known = true;
    }
    if (!known) throw RequestError("BadInput", "instruction_set must be avx512, avx2 or scalar");
  }
  if (request.frame.header.find("kv_cache_bytes") != nullptr) {
    generations_.set_cache_bytes(static_cast<std::size_t>(request.whole("kv_cache_bytes", 0, std::int64_t{1} << 50)));
  }
  int threads = available_cores();
  if (request.frame.header.find("threads") != nullptr) threads = static_cast<int>(request.whole("threads", 1, 1024));
  if (!pool_ || pool_->threads() != threads) pool_ = std::make_unique<ThreadPool>(threads);
  greeted_ = true;

  Json numerics;
  numerics.set("backend", "cpu");
  numerics.set("version", kNumericsVersion);
  Json fields;
  fields.set("protocol", kProtocol);
  fields.set("version", kVersion);
  fields.set("build", build_text());
  fields.set("numerics", std::move(numerics));
  fields.set("instruction_set", ops::name(ops::instruction_set()));
  fields.set("threads", threads);
  replies_.reply(request.id(), std::move(fields));
}

void Verbs::load(const Request& request) {
  const Architecture architecture = architecture_from_json(request.field("architecture"));
  const double range = request.number("initializer_range");
  if (!(range > 0)) throw RequestError("BadInput", "initializer_range must be above 0");
  const auto seed = static_cast<std::uint64_t>(request.whole("seed", 0, std::int64_t{1} << 53));
  auto policy = std::make_unique<Policy>(architecture);
  policy->initialize(range, seed);
  std::string digest = state_digest(*policy, *pool_);
  install(std::move(policy), std::move(digest), request.id());
}

void Verbs::load_state_file(const Request& request) {
  const std::string path = request.text("path");
  try {
    LoadedState loaded = load_state(path, *pool_);
    install(std::move(loaded.policy), std::move(loaded.digest), request.id());
  } catch (const SafetensorsError& error) {
    throw RequestError("BadInput", "state file " + path + ": " + error.what());
  } catch (const std::invalid_argument& error) {
    throw RequestError("BadInput", "state file " + path + ": " + error.what());
  }
}

// The old state is held until the new one is whole.
void Verbs::install(std::unique_ptr<Policy> policy, std::string digest, std::uint32_t id) {
  auto next = std::make_shared<HeldState>();
  next->digest = std::move(digest);
  next->policy = std::move(policy);
  generations_.prepare(next->policy->architecture());
  exchange(std::move(next));
  replies_.reply(id, {});
}

// noexcept: half of this would leave the cache of one policy beside another, so a failure ends the process.
void Verbs::exchange(std::shared_ptr<const HeldState> next) noexcept {
  generations_.forget_cache();
  held_.exchange(std::move(next));
}

void Verbs::save(const Request& request) {
  auto held = require_state(request);
  saver_.start(std::move(held), request.text("path"), request.id());
}

void Verbs::tell_held(const Request& request) {
  const auto held = held_.get();
  Json fields;
  fields.set("last_step_id", held && held->last_step_id ? Json(*held->last_step_id) : Json(nullptr));
  replies_.reply(request.id(), std::move(fields));
}

std::shared_ptr<const HeldState> Verbs::require_state(const Request& request) const {
  const std::string wanted = request.digest("state");
  auto held = held_.get();
  if (!held) throw RequestError("WrongState", "no state is held; " + request.verb + " needs " + wanted);
  if (wanted != held->digest) {
    throw RequestError("WrongState", "holds state " + held->digest + "; " + request.verb + " needs " + wanted);
  }
  return held;
}

void Verbs::score_tokens(const Request& request) {
  const auto held = require_state(request);
  const std::vector<std::int32_t> tokens = read_tokens(request, *held->policy);
  const std::vector<float> logprobs =
      score(*held->policy, tokens, read_temperature(request), [this] { clock_.advance(); });
  const OutgoingArray arrays[] = {{"logprobs",
                                   DType::f32,
                                   {static_cast<std::int64_t>(logprobs.size())},
                                   raw_bytes(std::span<const float>(logprobs))}};
  replies_.reply(request.id(), {}, arrays);
}

void Verbs::update(const Request& request) {
  const std::string step_id = request.digest("step_id");
  if (const auto held = held_.get(); held && held->last_step_id == step_id) return replies_.reply(request.id(), held->last_update);
  const auto held = require_state(request);
  UpdateSettings settings = read_update_settings(request);
  const auto mini_batches = static_cast<int>(settings.learning_rates.size());
  const BatchFile batch = read_batch(request.text("batch_path"), request.digest("batch_sha256"), held->digest, mini_batches);
  settings.cancelled = request.cancelled.get();
  settings.advanced = [this] { clock_.advance(); };
  settings.progress = [this, id = request.id()](int done, int total) { replies_.progress(id, done, total); };
  UpdateReport report = compute_update(*held->policy, batch.view(), settings, *pool_);
  if (!report.applied && report.reason == "cancelled") throw RequestError("Cancelled", "cancelled");

  Json metrics{Json::Object{}};
  for (const auto& [name, value] : report.metrics) metrics.set(name, value);
  Json reason;
  reason.set("reason", report.reason);
  Json fields;
  fields.set("applied", report.applied ? Json(true) : std::move(reason));
  fields.set("metrics", std::move(metrics));
  auto next = std::make_shared<HeldState>(*held);
  if (report.applied) {
    next->digest = state_digest(*report.next, *pool_);
    next->policy = std::move(report.next);
  }
  next->last_step_id = step_id;
  next->last_update = fields;
  exchange(std::move(next));
  ++updates_;
  if (aborts_after_update_) std::abort();
  replies_.reply(request.id(), std::move(fields));
}

// Points at which a test lets the engine die.
void Verbs::fault(const Request& request) {
  if (!options_.test_faults) throw RequestError("BadInput", "unknown verb fault");
  const std::string kind = request.text("kind");
  if (kind == "abort") std::abort();
  if (kind == "abort_after_update") {
    aborts_after_update_ = true;
  } else if (kind == "half_frame") {
    replies_.break_next();
  } else if (kind == "hang") {
    raise(SIGSTOP);
  } else if (kind == "stall") {
    while (true) pause();
  } else {
    throw RequestError("BadInput", "unknown fault " + kind);
  }
  replies_.reply(request.id(), {});
}

}  // namespace longhaul
