// The guard refuses, with figures, what does not fit into memory: a second model, or only its rotary table, beside the held model; and a
// reference beside a model. Also checks that a working engine takes as much memory as was planned.
#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include "backend/cpu_memory.h"
#include "backend/inference/kv_cache.h"
#include "support/checks.h"
#include "support/cpu.h"
#include "support/forked_engine.h"
#include "serve/policy/memory_guard.h"
#include "serve/protocol/request.h"
#include "serve/generation/scheduler.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const auto folder = std::filesystem::temp_directory_path() / ("longhaul-memory-guard-" + std::to_string(getpid()));

// Small enough to be made in a moment, but with weights that are much larger than everything else.
Architecture wide(int layers, int vocab = 71) {
  Architecture architecture = tiny_architecture();
  architecture.vocab_size = vocab;
  architecture.hidden_size = 256;
  architecture.intermediate_size = 1024;
  architecture.num_hidden_layers = layers;
  architecture.num_attention_heads = 8;
  architecture.num_key_value_heads = 4;
  architecture.max_position_embeddings = 512;
  return architecture;
}

double figure(const Json* object, const char* name) {
  const Json* value = object == nullptr ? nullptr : object->find(name);
  return value == nullptr || value->number() == nullptr ? -1 : *value->number();
}

const Json* memory_of(const Answer& answer) {
  const Json* error = answer.alive ? answer.header.find("error") : nullptr;
  return error == nullptr ? nullptr : error->find("memory");
}

// A field of /proc/<pid>/status, in bytes.
double status_bytes(pid_t process, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double kilobytes = 0;
    if (words >> name >> kilobytes && name == key + ":") return kilobytes * 1024;
  }
  return -1;
}

// Limits the process to this many more bytes of address space.
void leave(pid_t process, double bytes) {
  const auto most = static_cast<rlim_t>(status_bytes(process, "VmSize") + bytes);
  const rlimit limit{most, RLIM_INFINITY};
  CHECK(prlimit(process, RLIMIT_AS, &limit, nullptr) == 0);
}

// Adapters need little memory beside the weights. So a model that would fit alone may not fit beside another.
void a_model_that_does_not_fit_beside_the_one_that_is_held_is_refused() {
  ForkedEngine engine;
  engine.greet(1, {{"pass_rows", 512}, {"recompute", true}});
  const Json load = ForkedEngine::load_request({{"architecture", architecture_json(wide(26))}, {"lora", lora_json_of(3)}});
  const Answer first = engine.call(load);
  CHECK(first.ok());
  if (!first.ok()) return;
  const Json* memory = first.header.find("memory");
  const double second = figure(memory, "weights") + figure(memory, "panels") + figure(memory, "rope") + figure(memory, "moments");
  const double needed = figure(memory, "total") - engine.stat("resident_bytes");
  std::printf("loading takes %.1f MB, all of training %.1f MB more than is held\n", second / 1e6, needed / 1e6);
  CHECK(needed < 0.9 * second);

  leave(engine.pid(), (needed + second) / 2);
  const Answer refused = engine.call(load);
  CHECK(refused.error().starts_with("OutOfMemory: loading this model while the current model is still in memory needs"));
  CHECK(refused.error().find("MiB are free") != std::string::npos);
  CHECK(figure(memory_of(refused), "weights") == figure(memory, "weights") && figure(memory_of(refused), "total") == figure(memory, "total"));
  CHECK(figure(memory_of(refused), "available") < second && figure(memory_of(refused), "available") > 0.8 * needed);
  CHECK(refused.state() == first.state());
  const Tokens tokens(20, 3);
  const OutgoingArray arrays[] = {tokens.array()};
  CHECK(engine.call(generate_request(first.state(), 1, 5), arrays).ok());

  leave(engine.pid(), 1.3 * second);
  CHECK(engine.call(load).state() == first.state());
}

// Uses the guard alone, since an engine with such a model would need more memory for its cache than for a second table.
void a_model_whose_rotary_table_does_not_fit_is_refused() {
  Architecture architecture = tiny_architecture();
  architecture.num_hidden_layers = architecture.num_attention_heads = architecture.num_key_value_heads = 1;
  architecture.max_position_embeddings = 1 << 18;
  MemoryGuard guard;
  ThreadPool pool(1);
  guard.configure({1, 0, 512, true}, cpu(pool));
  const auto plan = [&](bool shared) { return guard.plan_load(architecture, {}, MomentFormat::fp32, false, shared); };
  const Json figures = plan(false);
  const double table = figure(&figures, "rope");
  CHECK(table > 20 * (figure(&figures, "weights") + figure(&figures, "panels") + figure(&figures, "moments")));
  // Stands for the old model, which is freed once the new one is complete. By then, all memory for training would fit.
  const std::vector<char> held(static_cast<std::size_t>(figure(&figures, "total")), 1);
  CHECK(resident_bytes() > held.size());
  rlimit before{};
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  leave(getpid(), 0.5 * table);
  CHECK_THROWS(RequestError, plan(false), "loading this model while the current model is still in memory needs");
  CHECK(plan(true).find("rope") != nullptr);
  leave(getpid(), 1.3 * table);
  CHECK(plan(false).find("rope") != nullptr);
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
}

void a_reference_that_does_not_fit_is_refused() {
  ForkedEngine engine;
  engine.greet();
  const Answer loaded = engine.call(ForkedEngine::load_request({{"architecture", architecture_json(wide(2))}}));
  const Json* memory = loaded.ok() ? loaded.header.find("memory") : nullptr;
  const double reference = figure(memory, "weights") + figure(memory, "panels") + figure(memory, "rope");
  CHECK(reference > 10e6);
  Json save = verb_request("save_weights");
  save.set("weights", loaded.text("weights"));
  save.set("path", (folder / "weights").string());
  CHECK(engine.call(std::move(save)).ok());
  const auto set_reference = [&](const char* from) {
    Json request = verb_request("set_reference");
    request.set("from", from);
    if (std::string(from) == "path") request.set("path", (folder / "weights").string());
    return engine.call(std::move(request));
  };
  leave(engine.pid(), 0.7 * reference);
  for (const char* from : {"held", "path"}) {
    const Answer refused = set_reference(from);
    CHECK(refused.error().starts_with("OutOfMemory: holding reference weights in addition to this model needs"));
    CHECK(figure(memory_of(refused), "reference") == reference && figure(memory_of(refused), "available") < reference);
    CHECK(refused.state() == loaded.state() && engine.call("held").header.find("reference")->is_null());
  }
  for (const char* from : {"held", "path"}) {
    leave(engine.pid(), 1.5 * reference);
    CHECK(set_reference(from).text("reference") == loaded.text("weights"));
  }
}

// The engine holds a state, samples from it and trains it with a KL term. So its memory has weights, cache, reference and what sampling
// left.
void a_working_engine_takes_the_memory_that_was_planned() {
  const Architecture architecture = wide(3, 4096);
  constexpr std::int64_t cache_bytes = 24 << 20;
  constexpr int rows = 2048, threads = 2;
  ForkedEngine engine;
  engine.greet(threads, {{"kv_cache_bytes", cache_bytes}, {"pass_rows", rows}, {"recompute", false}});
  const double before = status_bytes(engine.pid(), "RssAnon");
  std::string state = engine.call(ForkedEngine::load_request({{"architecture", architecture_json(architecture)}})).state();
  Json from_held = verb_request("set_reference");
  from_held.set("from", "held");
  const std::string reference = engine.call(std::move(from_held)).text("reference");
  CHECK(reference.size() == 64);

  // More generations than the cache has blocks for.
  constexpr std::uint32_t generations = 400;
  for (std::uint32_t i = 0; i < generations; ++i) {
    const Tokens tokens(random_tokens(6, architecture.vocab_size, i));
    const OutgoingArray arrays[] = {tokens.array()};
    engine.send(1000 + i, generate_request(state, i, 3), arrays);
  }
  for (std::uint32_t i = 0; i < generations; ++i) CHECK(engine.receive().ok());

  OwnedBatch batch;
  for (int s = 0; s < rows / 512; ++s) {
    const std::vector<std::int32_t> tokens = random_tokens(512, architecture.vocab_size, static_cast<std::uint32_t>(s));
    batch.add_node(-1, tokens, 0);
    for (int i = 1; i < 512; ++i) batch.add_target(s * 512 + i - 1, tokens[static_cast<std::size_t>(i)], 1, -8, s);
  }
  // Moments are pages of zeros, which take no memory, until the first step has written them.
  for (const char* step : {"first", "second"}) {
    Json request = update_request(state, write_batch((folder / step).string(), batch, state, 1), 1, step);
    Json loss = *request.find("loss");
    loss.set("kl_weight", 0.1);
    loss.set("kl_estimator", "k3");
    request.set("loss", std::move(loss));
    request.set("reference", reference);
    const Answer answer = engine.call(std::move(request));
    CHECK(answer.ok() && answer.state() != state);
    state = answer.state();
  }
  // The engine frees nothing between passes, so its pages of program files are the same now as at the peak.
  const pid_t process = engine.pid();
  const double taken = status_bytes(process, "VmHWM") - status_bytes(process, "RssFile") - status_bytes(process, "RssShmem") - before;

  MemoryRequest request;
  request.architecture = architecture;
  request.reference = true;
  request.threads = threads;
  request.kv_cache_bytes = Scheduler::most_cache_bytes(architecture, cache_bytes, KvCache::block_bytes(architecture));
  request.pass_rows = request.batch_rows = rows;
  request.longest_chain = 512;
  const MemoryPlan plan = plan_memory(request);
  CHECK(plan.reference > 10'000'000 && plan.kv_cache > 24'000'000);
  const double planned = static_cast<double>(plan.total);
  std::printf("%.1f MB of %.1f MB planned\n", taken / 1e6, planned / 1e6);
  CHECK(std::abs(taken / planned - 1) < 0.05);
}

}  // namespace

int main() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers take terabytes of address space
  std::filesystem::create_directory(folder);
  a_model_that_does_not_fit_beside_the_one_that_is_held_is_refused();
  a_reference_that_does_not_fit_is_refused();
  a_working_engine_takes_the_memory_that_was_planned();
  a_model_whose_rotary_table_does_not_fit_is_refused();
  std::filesystem::remove_all(folder);
#endif
  return test::finish();
}
