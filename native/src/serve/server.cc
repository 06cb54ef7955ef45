#include "serve/server.h"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "ops/ops.h"
#include "serve/log.h"
#include "serve/version.h"
#include "state/batch_file.h"
#include "state/digest.h"
#include "state/sha256.h"
#include "state/state_file.h"
#include "train/score.h"
#include "train/update.h"

namespace longhaul {
namespace {

std::string random_incarnation() {
  std::uint8_t bytes[8];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw std::system_error(errno, std::generic_category(), "getrandom");
  return to_hex(bytes);
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

template <class T>
std::span<const std::uint8_t> bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

SamplingKey read_key(const Json& key) {
  SamplingKey result;
  result.seed = static_cast<std::uint64_t>(whole_of(key, "key", "seed", 0, std::int64_t{1} << 53));
  const Json* domain = key.find("domain");
  const std::string* name = domain == nullptr ? nullptr : domain->string();
  if (name != nullptr && *name == "train") {
    result.domain = PhiloxDomain::train;
  } else if (name != nullptr && *name == "eval") {
    result.domain = PhiloxDomain::eval;
  } else {
    throw RequestError("BadInput", "key.domain must be train or eval");
  }
  constexpr std::int64_t most = 0xFFFFFFFF;
  result.step = static_cast<std::uint32_t>(whole_of(key, "key", "step", 0, most));
  result.slot = static_cast<std::uint32_t>(whole_of(key, "key", "slot", 0, most));
  result.sample = static_cast<std::uint32_t>(whole_of(key, "key", "sample", 0, most));
  return result;
}

double read_temperature(const Request& request) {
  const double temperature = request.number("temperature");
  if (!(temperature > 0) || temperature > 1000) throw RequestError("BadInput", "temperature must be above 0 and at most 1000");
  return temperature;
}

UpdateSettings read_settings(const Request& request) {
  UpdateSettings settings;
  settings.learning_rates = request.numbers("learning_rates");
  if (settings.learning_rates.empty()) throw RequestError("BadInput", "learning_rates must have one entry a mini-batch");
  const std::vector<double> betas = request.numbers("adam_betas");
  if (betas.size() != 2) throw RequestError("BadInput", "adam_betas must have two entries");
  settings.beta1 = betas[0];
  settings.beta2 = betas[1];
  settings.adam_eps = request.number("adam_eps");
  settings.weight_decay = request.number("weight_decay");
  settings.max_grad_norm = request.number("max_grad_norm");
  settings.reset_moments = request.flag("reset_moments");
  settings.temperature = read_temperature(request);
  const Json& loss = request.field("loss");
  const Json* kind = loss.find("kind");
  const std::string* name = kind == nullptr ? nullptr : kind->string();
  if (name != nullptr && *name == "cross_entropy") {
    settings.loss.kind = LossKind::cross_entropy;
  } else if (name != nullptr && *name == "clipped_policy") {
    settings.loss.kind = LossKind::clipped_policy;
    settings.loss.eps_clip_low = number_of(loss, "loss", "eps_clip_low");
    settings.loss.eps_clip_high = number_of(loss, "loss", "eps_clip_high");
  } else {
    throw RequestError("BadInput", "loss.kind must be cross_entropy or clipped_policy");
  }
  return settings;
}

}  // namespace

Server::Server(const ServerOptions& options) : options_(options), incarnation_(random_incarnation()) {}

int Server::run() {
  channel_ = std::make_unique<Channel>(
      options_.fd, [this](Frame frame) { receive(std::move(frame)); },
      [](const std::string& error) {
        // _exit: the engine's thread may be deep in an update, and nobody is left to hear of it.
        if (error.empty()) _exit(0);
        log_line("error", "broken stream: " + error);
        _exit(3);
      });
  while (true) {
    alive_at_ = now_ms();
    handle_all();
    if (shutting_down_) break;
    const bool blocked = channel_->unsent_bytes() > kMostUnsentBytes;
    if (scheduler_ && !scheduler_->idle() && (scheduler_->has_running() || !blocked)) {
      step();
      continue;
    }
    if (deferred_ && quiet()) continue;  // it became so just now
    if (!deferred_) alive_at_ = 0;
    // Unsent bytes and a save end without a message to this mailbox's condition, hence the short limit.
    const bool polling = blocked || deferred_.has_value();
    mailbox_.wait(std::chrono::milliseconds(polling ? 5 : 1000));
  }
  join_saver();
  channel_->flush(5000);
  return 0;
}

// ── The reader's thread ──────────────────────────────────────────────────────────────────────────────────────────────

void Server::receive(Frame frame) {
  Request request;
  request.frame = std::move(frame);
  try {
    request.verb = request.text("verb");
  } catch (const RequestError& error) {
    return refuse(request.id(), error.code, error.what());
  }
  if (request.verb == "stats") return stats(request.id());
  if (request.verb == "cancel") return cancel(request);
  request.cancelled = std::make_shared<std::atomic<bool>>(false);
  bool repeated = false;
  {
    std::lock_guard lock(shared_);
    repeated = !pending_.emplace(request.id(), request.cancelled).second;
  }
  if (repeated) return refuse(request.id(), "BadInput", "a request with this id is still open");
  mailbox_.put(std::move(request));
}

void Server::cancel(const Request& request) {
  try {
    const auto target = static_cast<std::uint32_t>(request.whole("target", 1, 0xFFFFFFFF));
    std::lock_guard lock(shared_);
    const auto found = pending_.find(target);
    // A request that has ended is no error: the cancellation crossed its reply.
    if (found != pending_.end()) *found->second = true;
  } catch (const RequestError& error) {
    return refuse(request.id(), error.code, error.what());
  }
  mailbox_.wake();
  reply(request.id(), {});
}

void Server::stats(std::uint32_t id) {
  const std::int64_t alive_at = alive_at_;
  Json values;
  values.set("generated_tokens", generation_counters_.generated_tokens.load());
  values.set("prefilled_tokens", generation_counters_.prefilled_tokens.load());
  values.set("reused_tokens", generation_counters_.reused_tokens.load());
  values.set("passes", generation_counters_.passes.load());
  values.set("preemptions", generation_counters_.preemptions.load());
  values.set("evicted_blocks", generation_counters_.evicted_blocks.load());
  values.set("running", generation_counters_.running.load());
  values.set("waiting", generation_counters_.waiting.load());
  values.set("updates", updates_.load());
  values.set("unsent_bytes", static_cast<std::uint64_t>(channel_->unsent_bytes()));
  values.set("busy_ms", alive_at == 0 ? std::int64_t{0} : now_ms() - alive_at);
  Json fields;
  fields.set("stats", std::move(values));
  reply(id, std::move(fields));
}

// ── Replies ──────────────────────────────────────────────────────────────────────────────────────────────────────────

void Server::reply(std::uint32_t id, Json fields, Arrays arrays) {
  Json header;
  header.set("ok", true);
  if (const Json::Object* members = fields.object()) {
    for (const JsonMember& member : *members) header.set(member.name, member.value);
  }
  send(id, std::move(header), arrays);
}

void Server::refuse(std::uint32_t id, const std::string& code, const std::string& message) {
  Json error;
  error.set("code", code);
  error.set("message", is_utf8(message) ? message : std::string("(a message that is not UTF-8)"));
  Json header;
  header.set("ok", false);
  header.set("error", std::move(error));
  send(id, std::move(header), {});
}

void Server::progress(std::uint32_t id, Json fields) {
  Json header;
  header.set("progress", std::move(fields));
  channel_->send(encode_frame(id, std::move(header)));
}

void Server::send(std::uint32_t id, Json header, Arrays arrays) {
  header.set("incarnation", incarnation_);
  const auto held = held_state();
  header.set("state", held ? Json(held->digest) : Json(nullptr));
  {
    std::lock_guard lock(shared_);
    pending_.erase(id);
  }
  std::vector<std::uint8_t> bytes = encode_frame(id, std::move(header), arrays);
  if (fault_ == Fault::half_frame) {
    bytes.resize(bytes.size() / 2);
    channel_->send(std::move(bytes));
    channel_->flush(1000);
    log_line("warn", "test fault: half a frame was sent");
    _exit(70);
  }
  channel_->send(std::move(bytes));
}

std::shared_ptr<const HeldState> Server::held_state() const {
  std::lock_guard lock(shared_);
  return held_;
}

// ── The engine's thread ──────────────────────────────────────────────────────────────────────────────────────────────

bool Server::needs_quiet(const std::string& verb) {
  return verb == "load" || verb == "load_state" || verb == "update" || verb == "shutdown" || verb == "hello";
}

bool Server::quiet() const { return (!scheduler_ || scheduler_->idle()) && !saving_; }

void Server::handle_all() {
  while (!shutting_down_) {
    if (!deferred_) {
      deferred_ = mailbox_.take();
      if (!deferred_) return;
    }
    const bool must_wait = needs_quiet(deferred_->verb) ? !quiet() : deferred_->verb == "save_state" && saving_;
    if (must_wait && !*deferred_->cancelled) return;
    Request request = std::move(*deferred_);
    deferred_.reset();
    handle(request);
  }
}

void Server::handle(Request& request) {
  try {
    if (*request.cancelled) throw RequestError("Cancelled", "cancelled before it began");
    if (request.verb == "hello") return hello(request);
    if (!greeted_) throw RequestError("BadInput", "the first verb must be hello");
    if (request.verb == "generate") return generate(request);
    if (request.verb == "score") return score_tokens(request);
    if (request.verb == "update") return update(request);
    if (request.verb == "held") return held(request);
    if (request.verb == "load") return load(request);
    if (request.verb == "load_state") return load_state_file(request);
    if (request.verb == "save_state") return save(request);
    if (request.verb == "fault") return fault(request);
    if (request.verb == "shutdown") {
      shutting_down_ = true;
      return reply(request.id(), {});
    }
    throw RequestError("BadInput", "unknown verb " + request.verb);
  } catch (const RequestError& error) {
    refuse(request.id(), error.code, error.what());
  } catch (const BatchError& error) {
    refuse(request.id(), "BadBatch", error.what());
  } catch (const std::bad_alloc&) {
    refuse(request.id(), "OutOfMemory", "not enough memory for " + request.verb);
  } catch (const std::exception& error) {
    refuse(request.id(), "BadInput", error.what());
  }
}

void Server::hello(const Request& request) {
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
    cache_bytes_ = static_cast<std::size_t>(request.whole("kv_cache_bytes", 0, std::int64_t{1} << 50));
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
  reply(request.id(), std::move(fields));
}

void Server::load(const Request& request) {
  const Architecture architecture = architecture_from_json(request.field("architecture"));
  const double range = request.number("initializer_range");
  if (!(range > 0)) throw RequestError("BadInput", "initializer_range must be above 0");
  const auto seed = static_cast<std::uint64_t>(request.whole("seed", 0, std::int64_t{1} << 53));
  auto policy = std::make_unique<Policy>(architecture);
  policy->initialize(range, seed);
  install(std::move(policy), request.id());
}

void Server::load_state_file(const Request& request) {
  const std::string path = request.text("path");
  try {
    install(load_state(path, *pool_), request.id());
  } catch (const SafetensorsError& error) {
    throw RequestError("BadInput", "state file " + path + ": " + error.what());
  } catch (const std::invalid_argument& error) {
    throw RequestError("BadInput", "state file " + path + ": " + error.what());
  }
}

// The old state is held until the new one is whole.
void Server::install(std::unique_ptr<Policy> policy, std::uint32_t id) {
  auto next = std::make_shared<HeldState>();
  next->digest = state_digest(*policy, *pool_);
  next->policy = std::move(policy);
  const auto held = held_state();
  if (!held || !(held->policy->architecture() == next->policy->architecture())) {
    scheduler_ = std::make_unique<Scheduler>(next->policy->architecture(), cache_bytes_, generation_counters_);
  }
  hold(std::move(next));
  reply(id, {});
}

// noexcept: half of this would leave the cache of one policy beside another, so a failure ends the process.
void Server::hold(std::shared_ptr<const HeldState> next) noexcept {
  scheduler_->forget_cache();
  std::lock_guard lock(shared_);
  held_.swap(next);
}

void Server::save(const Request& request) {
  const auto held = require_state(request);
  const std::string path = request.text("path");
  join_saver();  // one save at a time: handle_all waited for the last one
  saving_ = true;
  saver_ = std::thread([this, held, id = request.id(), path] {
    try {
      const WrittenFile written = save_state(*held->policy, path);
      Json entry;
      entry.set("path", path);
      entry.set("size", written.size);
      entry.set("sha256", written.sha256);
      Json fields;
      fields.set("files", Json::Array{std::move(entry)});
      reply(id, std::move(fields));
    } catch (const std::bad_alloc&) {
      refuse(id, "OutOfMemory", "not enough memory to save the state");
    } catch (const std::exception& error) {
      refuse(id, "BadInput", error.what());
    }
    saving_ = false;
    mailbox_.wake();
  });
}

void Server::join_saver() {
  if (saver_.joinable()) saver_.join();
}

void Server::held(const Request& request) {
  const auto held = held_state();
  Json fields;
  fields.set("last_step_id", held && held->last_step_id ? Json(*held->last_step_id) : Json(nullptr));
  reply(request.id(), std::move(fields));
}

std::shared_ptr<const HeldState> Server::require_state(const Request& request) const {
  const std::string wanted = request.digest("state");
  auto held = held_state();
  if (!held) throw RequestError("WrongState", "no state is held; " + request.verb + " needs " + wanted);
  if (wanted != held->digest) {
    throw RequestError("WrongState", "holds state " + held->digest + "; " + request.verb + " needs " + wanted);
  }
  return held;
}

void Server::check_tokens(const Policy& policy, const std::vector<std::int32_t>& tokens) {
  const int vocab = policy.architecture().vocab_size;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      throw RequestError("BadInput", "tokens[" + std::to_string(i) + "] is " + std::to_string(tokens[i]) +
                                         "; the vocabulary has " + std::to_string(vocab));
    }
  }
}

void Server::generate(Request& request) {
  const auto held = require_state(request);
  Generation generation;
  generation.id = request.id();
  generation.tokens = request.tokens();
  check_tokens(*held->policy, generation.tokens);
  const auto most = static_cast<std::size_t>(held->policy->architecture().max_position_embeddings);
  if (generation.tokens.empty() || generation.tokens.size() >= most) {
    throw RequestError("BadInput", std::to_string(generation.tokens.size()) + " tokens; a transcript has 1 to " +
                                       std::to_string(most - 1) + " before it goes on");
  }
  generation.prompt_length = generation.tokens.size();
  generation.key = read_key(request.field("key"));
  generation.temperature = static_cast<float>(read_temperature(request));
  const auto limit = static_cast<std::size_t>(request.whole("max_new_tokens", 1, 1 << 30));
  generation.max_length = std::min(most, generation.prompt_length + limit);
  for (const double token : request.numbers("stop_tokens")) generation.stop_tokens.push_back(static_cast<std::int32_t>(token));
  generation.cancelled = request.cancelled;
  generation.tokens.reserve(generation.max_length < 4096 ? generation.max_length : generation.prompt_length + 256);
  scheduler_->submit(std::move(generation));
}

void Server::step() {
  std::vector<Finished> finished;
  try {
    scheduler_->step(*held_state()->policy, *pool_, channel_->unsent_bytes() <= kMostUnsentBytes, finished);
  } catch (const std::exception& error) {
    const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    for (const Generation& generation : scheduler_->take_all()) {
      refuse(generation.id, memory ? "OutOfMemory" : "BadInput",
             memory ? std::string("not enough memory for this pass") : std::string(error.what()));
    }
  }
  for (Finished& one : finished) answer(one);
}

void Server::answer(Finished& finished) {
  const Generation& generation = finished.generation;
  if (finished.how == Finished::How::cancelled) return refuse(generation.id, "Cancelled", "cancelled");
  if (finished.how == Finished::How::not_finite) {
    return refuse(generation.id, "BadInput", "the policy's logits are not finite; its weights have diverged");
  }
  const auto sampled = std::span<const std::int32_t>(generation.tokens).subspan(generation.prompt_length);
  const auto count = static_cast<std::int64_t>(sampled.size());
  const OutgoingArray arrays[] = {
      {"tokens", DType::i32, {count}, bytes_of(sampled)},
      {"logprobs", DType::f32, {count}, bytes_of(std::span<const float>(generation.logprobs))},
  };
  Json fields;
  fields.set("finish", finished.how == Finished::How::stop ? "stop" : "length");
  reply(generation.id, std::move(fields), arrays);
}

void Server::score_tokens(const Request& request) {
  const auto held = require_state(request);
  const std::vector<std::int32_t> tokens = request.tokens();
  check_tokens(*held->policy, tokens);
  const std::vector<float> logprobs =
      score(*held->policy, tokens, read_temperature(request), [this] { alive_at_ = now_ms(); });
  const OutgoingArray arrays[] = {{"logprobs",
                                   DType::f32,
                                   {static_cast<std::int64_t>(logprobs.size())},
                                   bytes_of(std::span<const float>(logprobs))}};
  reply(request.id(), {}, arrays);
}

void Server::update(const Request& request) {
  const std::string step_id = request.digest("step_id");
  if (const auto held = held_state(); held && held->last_step_id == step_id) return reply(request.id(), held->last_update);
  const auto held = require_state(request);
  UpdateSettings settings = read_settings(request);
  const auto mini_batches = static_cast<int>(settings.learning_rates.size());
  const BatchFile batch = read_batch(request.text("batch_path"), request.digest("batch_sha256"), held->digest, mini_batches);
  settings.cancelled = request.cancelled.get();
  settings.advanced = [this] { alive_at_ = now_ms(); };
  settings.progress = [this, id = request.id()](int done, int total) {
    Json fields;
    fields.set("done", done);
    fields.set("total", total);
    progress(id, std::move(fields));
  };
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
  hold(std::move(next));
  ++updates_;
  if (fault_ == Fault::abort_after_update) std::abort();
  reply(request.id(), std::move(fields));
}

// Points at which a test lets the engine die.
void Server::fault(const Request& request) {
  if (!options_.test_faults) throw RequestError("BadInput", "unknown verb fault");
  const std::string kind = request.text("kind");
  if (kind == "abort") std::abort();
  if (kind == "abort_after_update") {
    fault_ = Fault::abort_after_update;
  } else if (kind == "half_frame") {
    fault_ = Fault::half_frame;
  } else if (kind == "hang") {
    raise(SIGSTOP);
  } else if (kind == "stall") {
    while (true) pause();
  } else {
    throw RequestError("BadInput", "unknown fault " + kind);
  }
  reply(request.id(), {});
}

}  // namespace longhaul
