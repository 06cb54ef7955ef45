#include "serve/verbs.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <new>

#include "ops/ops.h"
#include "serve/faults.h"
#include "serve/log.h"
#include "serve/protocol/progress_frames.h"
#include "serve/protocol/request_settings.h"
#include "serve/version.h"
#include "serve/generation/vocabulary.h"
#include "state/digest/digest.h"
#include "state/hf/hf_export.h"
#include "state/identity.h"
#include "state/state_file.h"
#include "state/weights_file.h"
#include "train/score.h"

namespace longhaul {
namespace {

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void choose_instruction_set(const std::string& wanted) {
  for (const auto set : {ops::InstructionSet::scalar, ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
    if (wanted != ops::name(set)) continue;
    if (!ops::supported(set)) throw RequestError("BadInput", "this machine has no " + wanted);
    return ops::set_instruction_set(set);
  }
  throw RequestError("BadInput", "instruction_set must be avx512, avx2 or scalar");
}

Json file_entry(const WrittenFile& file) {
  Json entry;
  entry.set("path", file.path);
  entry.set("size", file.size);
  return entry;
}

Json files_reply(const std::vector<WrittenFile>& files) {
  Json::Array list;
  for (const WrittenFile& file : files) list.push_back(file_entry(file));
  Json fields;
  fields.set("files", std::move(list));
  return fields;
}

HfExport read_export(const Request& request, const Architecture& architecture) {
  HfExport settings;
  const std::string dtype = request.text("dtype"), adapters = request.text("adapters");
  if (dtype != "F32" && dtype != "BF16") throw RequestError("BadInput", "dtype must be F32 or BF16");
  if (adapters != "merged" && adapters != "peft") throw RequestError("BadInput", "adapters must be merged or peft");
  settings.dtype = dtype == "F32" ? HfDtype::f32 : HfDtype::bf16;
  settings.adapters = adapters == "merged" ? HfAdapters::merged : HfAdapters::peft;
  settings.eos_tokens = request.token_list("eos_tokens");
  for (const std::int32_t token : settings.eos_tokens) {
    if (token < architecture.vocab_size) continue;
    throw RequestError("BadInput", "eos_tokens has " + std::to_string(token) + ", which is not a token of this model; its vocabulary has " +
                                       std::to_string(architecture.vocab_size));
  }
  if (request.has("base_model")) settings.base_model = request.text("base_model");
  return settings;
}

Json device_json(const DeviceInfo& device) {
  Json json;
  json.set("kind", device.kind);
  if (!device.name.empty()) json.set("name", device.name);
  if (device.memory_bytes > 0) json.set("memory_bytes", static_cast<std::uint64_t>(device.memory_bytes));
  return json;
}

// Digest of the weights under a policy's adapters; empty for a policy without adapters.
std::string base_of(const HeldState& held) {
  return held.policy->adapters() != nullptr ? held.weights_digest : std::string();
}

// Call before the host's arrays are written. Throws DeviceDiffers if their digest is not the one that a device computed.
void require_same_copy(const HeldState& held, ThreadPool& pool) {
  if (!held.hashed_by_device) return;
  const std::string copied = state_digest(*held.policy, pool, base_of(held));
  if (copied != held.digest)
    throw RequestError("DeviceDiffers", "the GPU has state " + held.digest + ", but what it sent to the host is " + copied +
                                            "; nothing is written. Take the node out of service");
}

std::int64_t ms_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

Verbs::Verbs(VerbOptions options, Replies& replies, StateHolder& held, WorkClock& clock)
    : options_(std::move(options)),
      replies_(replies),
      held_(held),
      clock_(clock),
      generations_(replies),
      updates_(replies, memory_, [this] { advance(); }),
      saver_(replies, options_.save_ended) {}

const Verbs::Verb* Verbs::find(const std::string& name) {
  static constexpr Verb verbs[] = {
      {"hello", &Verbs::hello, Waits::for_all, true},
      {"load", &Verbs::load, Waits::for_all, true},
      {"load_hf", &Verbs::load_hf_folder, Waits::for_all, true},
      {"load_weights", &Verbs::load_weights_file, Waits::for_all, true},
      {"load_state", &Verbs::load_state_file, Waits::for_all, true},
      {"update", &Verbs::update, Waits::for_all, true},
      {"shutdown", &Verbs::shutdown, Waits::for_all},
      {"save_state", &Verbs::save_state_file, Waits::for_save},
      {"save_weights", &Verbs::save_weights_file, Waits::for_save},
      {"export_hf", &Verbs::export_folder, Waits::for_save},
      {"set_reference", &Verbs::set_reference, Waits::never},
      {"set_vocabulary", &Verbs::set_vocabulary, Waits::never},
      {"held", &Verbs::tell_held, Waits::never},
      {"generate", &Verbs::generate, Waits::never, true},
      {"score", &Verbs::score_tokens, Waits::never, true},
      {"fault", &Verbs::fault, Waits::never},
  };
  for (const Verb& verb : verbs) {
    if (name == verb.name) return &verb;
  }
  return nullptr;
}

bool Verbs::must_wait(const Request& request) const {
  const Verb* verb = find(request.verb);
  if (verb == nullptr || verb->waits == Waits::never) return false;
  return saver_.busy() || (verb->waits == Waits::for_all && !generations_.idle());
}

void Verbs::handle(const Request& request) {
  try {
    if (*request.cancelled) throw RequestError("Cancelled", "cancelled before it began");
    const Verb* verb = find(request.verb);
    if (verb == nullptr || (request.verb == "fault" && !options_.test_faults)) {
      throw RequestError("BadInput", "unknown verb " + request.verb);
    }
    if (!greeted_ && request.verb != "hello") throw RequestError("BadInput", "the first verb must be hello");
    if (const std::string erred = erring_device_.what(); !erred.empty() && verb->computes) throw RequestError("DeviceDiffers", erred);
    (this->*verb->run)(request);
  } catch (const RequestError& error) {
    if (std::string_view(error.code) == "DeviceDiffers") erring_device_.note(error.what());
    replies_.refuse(request.id(), request.verb, std::current_exception());
  } catch (...) {
    replies_.refuse(request.id(), request.verb, std::current_exception());
  }
}

void Verbs::hello(const Request& request) {
  if (request.whole("protocol", 0, 1 << 30) != protocol_version) {
    throw RequestError("VersionMismatch", "this engine speaks protocol " + std::to_string(protocol_version) + ", not " +
                                              std::to_string(request.whole("protocol", 0, 1 << 30)));
  }
  MemoryOptions options = memory_.options();
  if (request.has("kv_cache_bytes")) {
    options.cache_bytes = static_cast<std::size_t>(request.whole("kv_cache_bytes", 0, std::int64_t{1} << 50));
  }
  if (request.has("pass_rows")) {
    options.pass_rows = static_cast<int>(request.whole("pass_rows", piece_rows, 1 << 30));
    if (*options.pass_rows % piece_rows != 0) {
      throw RequestError("BadInput", "pass_rows must be a multiple of " + std::to_string(piece_rows));
    }
  }
  if (request.has("recompute")) options.recompute = request.flag("recompute");
  options.threads = request.has("threads") ? static_cast<int>(request.whole("threads", 1, 1024)) : available_cores();
  if (request.has("instruction_set")) choose_instruction_set(request.text("instruction_set"));
  if (!pool_ || pool_->threads() != options.threads) use_threads(options.threads);
  memory_.configure(options, *backend_);
  generations_.set_cache_bytes(options.cache_bytes);
  greeted_ = true;

  Json numerics;
  numerics.set("backend", backend_->numerics().name);
  numerics.set("version", backend_->numerics().version);
  Json fields;
  fields.set("protocol", protocol_version);
  fields.set("version", engine_version);
  fields.set("build", build_text());
  fields.set("numerics", std::move(numerics));
  fields.set("device", device_json(backend_->device()));
  fields.set("instruction_set", ops::name(ops::instruction_set()));
  fields.set("threads", options.threads);
  replies_.reply(request.id(), std::move(fields));
}

// The old pool and backend stay if the new ones cannot be made.
void Verbs::use_threads(int threads) {
  auto pool = std::make_unique<ThreadPool>(threads);
  auto backend = options_.make_backend(*pool);
  const auto held = held_.get();
  if (held) backend->hold(held->policy);
  backend->hold_reference(reference_.weights);
  // Objects that refer to the old backend are destroyed before it.
  updates_.forget();
  generations_.forget();
  backend_ = std::move(backend);
  pool_ = std::move(pool);
  if (held) generations_.prepare(held->policy->architecture(), *backend_);
}

void Verbs::load(const Request& request) { load_model(request, &Loader::random); }
void Verbs::load_hf_folder(const Request& request) { load_model(request, &Loader::folder); }
void Verbs::load_weights_file(const Request& request) { load_model(request, &Loader::weights_file); }
void Verbs::load_state_file(const Request& request) { load_model(request, &Loader::state_file); }

// The old state stays held until the new one is complete.
void Verbs::load_model(const Request& request, LoadKind kind) {
  const auto began = std::chrono::steady_clock::now();
  updates_.forget();
  LoadedModel loaded = (loader_for(request).*kind)(request);
  auto next = std::make_shared<HeldState>();
  next->digest = std::move(loaded.digest);
  next->weights_digest = std::move(loaded.weights_digest);
  next->policy = updates_.lend(std::move(loaded.policy));
  const Architecture& architecture = next->policy->architecture();
  Json parameters;
  parameters.set("model", static_cast<std::uint64_t>(next->policy->layout().total));
  parameters.set("trained", static_cast<std::uint64_t>(next->policy->trained().size()));
  loaded.fields.set("architecture", architecture_json(architecture));
  loaded.fields.set("parameters", std::move(parameters));
  log_line("info", request.verb + " is done",
           {{"ms", ms_since(began)}, {"state", next->digest}, {"resident_bytes", std::uint64_t{resident_bytes()}}});
  backend_->hold(next->policy);
  try {
    generations_.prepare(architecture, *backend_);
  } catch (...) {
    if (const auto held = held_.get()) backend_->hold(held->policy);
    throw;
  }
  if (reference_.weights && !(reference_.weights->architecture() == architecture)) refer_to({});
  exchange(std::move(next));
  updates_.forget();  // frees the policy that was held before
  replies_.reply(request.id(), std::move(loaded.fields));
}

Loader Verbs::loader_for(const Request& request) {
  const auto progress = [this, frames = ProgressFrames(replies_, request)](std::uint64_t done, std::uint64_t total) {
    advance();
    frames(done, total);
  };
  return Loader(memory_, *pool_, held_.get(), reference_, progress);
}

// noexcept: a half-done exchange would leave one policy beside the cache of another, so a failure ends the process.
void Verbs::exchange(std::shared_ptr<const HeldState> next) noexcept {
  generations_.forget_cache();
  held_.exchange(std::move(next));
}

void Verbs::advance() {
  clock_.advance();
  if (advances_left_ < 0 || advances_left_-- > 0) return;
  throw std::bad_alloc();
}

void Verbs::refer_to(Reference reference) {
  // The backend frees the old one first.
  reference_ = {};
  backend_->hold_reference(reference.weights);
  reference_ = std::move(reference);
}

void Verbs::set_reference(const Request& request) {
  const std::string from = request.text("from");
  if (from == "none") {
    refer_to({});
  } else if (from == "held") {
    // A state never changes, so its weights can be shared. But then an update of all weights needs other memory to write to, and that must
    // fit.
    const auto held = with_weights_digest(require_model(request));
    const bool frozen = held->policy->adapters() != nullptr;
    if (!frozen && reference_.weights != held->policy->shared_weights()) memory_.plan_reference(*held->policy);
    refer_to({held->policy->shared_weights(), held->weights_digest});
  } else if (from == "path") {
    require_model(request);
    refer_to(loader_for(request).reference_at(request.text("path")));
  } else {
    throw RequestError("BadInput", "from must be held, path or none");
  }
  Json fields;
  fields.set("reference", reference_.weights ? Json(reference_.digest) : Json(nullptr));
  replies_.reply(request.id(), std::move(fields));
}

void Verbs::save_state_file(const Request& request) {
  saver_.start(request.id(), request.verb,
               [this, held = require_state(request), path = request.text("path"), frames = ProgressFrames(replies_, request)] {
                 check_copy(*held);
                 return files_reply({save_state(*held->policy, path, base_of(*held), frames)});
               });
}

void Verbs::check_copy(const HeldState& held) {
  ThreadPool one(1);  // the engine's own threads generate beside a save
  try {
    require_same_copy(held, one);
  } catch (const RequestError& error) {
    erring_device_.note(error.what());
    throw;
  }
}

void Verbs::save_weights_file(const Request& request) {
  const std::string wanted = request.digest("weights");
  const auto held = with_weights_digest(require_model(request));
  if (wanted != held->weights_digest) {
    throw RequestError("WrongState", "holds weights " + held->weights_digest + "; save_weights needs " + wanted);
  }
  saver_.start(request.id(), request.verb,
               [held, path = request.text("path"), frames = ProgressFrames(replies_, request)] {
                 Json fields = files_reply({save_weights(held->policy->weights(), path, frames)});
                 fields.set("weights", held->weights_digest);
                 return fields;
               });
}

void Verbs::export_folder(const Request& request) {
  const auto held = require_state(request);
  const HfExport settings = read_export(request, held->policy->architecture());
  if (settings.adapters == HfAdapters::peft && held->policy->adapters() == nullptr) {
    throw RequestError("BadInput", "adapters is peft, but the state has no adapters, because all weights were trained; export it as merged");
  }
  saver_.start(request.id(), request.verb,
               [this, held, settings, path = request.text("path"), frames = ProgressFrames(replies_, request)] {
                 check_copy(*held);
                 return files_reply(export_hf(*held->policy, path, settings, frames));
               });
}

void Verbs::set_vocabulary(const Request& request) {
  const auto held = require_model(request);
  const std::vector<std::int32_t> lengths = request.i32_array("lengths");
  const auto rows = static_cast<std::size_t>(held->policy->architecture().vocab_size);
  if (lengths.size() > rows) {
    throw RequestError("BadInput", "lengths has " + std::to_string(lengths.size()) + " tokens, but the model's vocabulary " +
                                       std::to_string(rows));
  }
  auto vocabulary = std::make_shared<const Vocabulary>(request.u8_array("bytes"), lengths);
  generations_.set_vocabulary(std::move(vocabulary));
  replies_.reply(request.id(), {});
}

void Verbs::tell_held(const Request& request) {
  auto held = held_.get();
  // Computed only on request: after an update of all weights this means hashing the weights, and most callers need only the state's digest.
  if (held && request.has("weights") && request.flag("weights")) held = with_weights_digest(std::move(held));
  const bool known = held && !held->weights_digest.empty();
  Json fields;
  fields.set("weights", known ? Json(held->weights_digest) : Json(nullptr));
  fields.set("reference", reference_.weights ? Json(reference_.digest) : Json(nullptr));
  fields.set("last_step_id", held && held->last_step_id ? Json(*held->last_step_id) : Json(nullptr));
  replies_.reply(request.id(), std::move(fields));
}

std::shared_ptr<const HeldState> Verbs::require_model(const Request& request) const {
  auto held = held_.get();
  if (!held) throw RequestError("WrongState", "no state is loaded; " + request.verb + " needs one: send a load first");
  return held;
}

std::shared_ptr<const HeldState> Verbs::require_state(const Request& request) const {
  const std::string wanted = request.digest("state");
  auto held = held_.get();
  if (!held) throw RequestError("WrongState", "no state is loaded; " + request.verb + " needs " + wanted);
  if (wanted != held->digest) {
    throw RequestError("WrongState", "holds state " + held->digest + "; " + request.verb + " needs " + wanted);
  }
  return held;
}

std::shared_ptr<const HeldState> Verbs::with_weights_digest(std::shared_ptr<const HeldState> held) {
  if (!held->weights_digest.empty()) return held;
  require_same_copy(*held, *pool_);
  auto next = std::make_shared<HeldState>(*held);
  next->weights_digest = weights_digest(held->policy->weights(), *pool_);
  held_.exchange(next);  // the same state, now with its weights' digest
  return next;
}

void Verbs::generate(const Request& request) { generations_.submit(request, *require_state(request)->policy); }

void Verbs::score_tokens(const Request& request) {
  const auto held = require_state(request);
  const std::vector<std::int32_t> tokens = read_tokens(request, *held->policy);
  const std::vector<float> logprobs =
      score(*held->policy, tokens, read_temperature(request), *backend_, [&] {
        clock_.advance();
        if (*request.cancelled) throw RequestError("Cancelled", "cancelled");
      });
  const OutgoingArray arrays[] = {{"logprobs",
                                   DType::f32,
                                   {static_cast<std::int64_t>(logprobs.size())},
                                   raw_bytes(std::span<const float>(logprobs))}};
  replies_.reply(request.id(), {}, arrays);
}

void Verbs::update(const Request& request) {
  const auto began = std::chrono::steady_clock::now();
  const std::string step_id = request.digest("step_id");
  if (const auto held = held_.get(); held && held->last_step_id == step_id) return replies_.reply(request.id(), held->last_update);
  const auto next = updates_.compute(request, *require_state(request), reference_, *backend_, *pool_);
  // Without delay: the backend already holds the next policy, and the following work may run out of memory.
  exchange(next);
  ++updates_done_;
  if (aborts_after_update_) std::abort();
  log_line("info", "update is done", {{"ms", ms_since(began)}, {"state", next->digest}, {"step_id", step_id}});
  replies_.reply(request.id(), next->last_update);
}

// For tests: chooses a point at which the engine dies or memory runs out.
void Verbs::fault(const Request& request) {
  const std::string kind = request.text("kind");
  if (kind == "abort_after_update") {
    aborts_after_update_ = true;
  } else if (kind == "half_frame") {
    replies_.break_next();
  } else if (kind == "out_of_memory") {
    advances_left_ = request.has("after") ? static_cast<int>(request.whole("after", 0, 1 << 20)) : 0;
  } else {
    raise_fault(kind);
  }
  replies_.reply(request.id(), {});
}

void Verbs::shutdown(const Request& request) {
  shutting_down_ = true;
  replies_.reply(request.id(), {});
}

}  // namespace longhaul
