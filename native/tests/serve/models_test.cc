// Loading and saving models: random ones, from files and from folders, whole and with adapters; the reference of a KL term; and errors for
// models that do not fit and for unknown names.
#include <sys/resource.h>

#include "support/checks.h"
#include "support/forked_engine.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const auto folder = std::filesystem::temp_directory_path() / ("longhaul-models-" + std::to_string(getpid()));
constexpr int mini_batch_count = 2;

std::string path_of(const char* name) { return (folder / name).string(); }

WrittenBatch batch_for(const std::string& state, int mini_batches = mini_batch_count, int own = 6) {
  const OwnedBatch batch = group_batch(tiny_architecture().vocab_size, mini_batches, 2, 9, 2, own);
  return write_batch((folder / ("batch-" + state.substr(0, 16))).string(), batch, state, mini_batches);
}

Answer update(ForkedEngine& engine, const std::string& state, const Json::Object& extra = {}, const Json::Object& loss = {}) {
  Json request = update_request(state, batch_for(state), mini_batch_count, state);
  for (const JsonMember& field : extra) request.set(field.name, field.value);
  Json full = *request.find("loss");
  for (const JsonMember& field : loss) full.set(field.name, field.value);
  request.set("loss", std::move(full));
  return engine.call(std::move(request));
}

Answer with_path(ForkedEngine& engine, const char* verb, const std::string& path, const Json::Object& extra = {}) {
  Json request = verb_request(verb);
  request.set("path", path);
  for (const JsonMember& field : extra) request.set(field.name, field.value);
  return engine.call(std::move(request));
}

Json::Object export_of(const std::string& state, const char* adapters, Json::Array eos_tokens = {}, const char* base_model = nullptr) {
  Json::Object fields{{"state", state}, {"dtype", "F32"}, {"adapters", adapters}, {"eos_tokens", std::move(eos_tokens)}};
  if (base_model != nullptr) fields.push_back({"base_model", base_model});
  return fields;
}

Answer set_reference(ForkedEngine& engine, const char* from, const std::string& path = "") {
  Json request = verb_request("set_reference");
  request.set("from", from);
  if (!path.empty()) request.set("path", path);
  return engine.call(std::move(request));
}

double figure(const Json* memory, const char* name) {
  const Json* value = memory == nullptr ? nullptr : memory->find(name);
  return value == nullptr || value->number() == nullptr ? -1 : *value->number();
}

void saved_weights_load_as_the_same_state() {
  ForkedEngine engine;
  const std::string state = engine.start();
  const std::string weights = engine.call("held").text("weights");
  CHECK(weights.size() == 64 && weights != state);
  const Answer saved = with_path(engine, "save_weights", path_of("weights"), {{"weights", weights}});
  CHECK(saved.ok() && saved.text("weights") == weights);
  CHECK(with_path(engine, "save_weights", path_of("others"), {{"weights", state}}).error().starts_with("WrongState"));
  const std::string after = update(engine, state).state();
  CHECK(engine.call("held").header.find("weights")->is_null());
  const std::string moved = engine.call(Json::Object{{"verb", "held"}, {"weights", true}}).text("weights");
  CHECK(after != state && moved.size() == 64 && moved != weights);

  const Answer loaded = with_path(engine, "load_weights", path_of("weights"));
  CHECK(loaded.ok() && loaded.text("weights") == weights && loaded.state() == state);
  CHECK(loaded.header.find("architecture") != nullptr);
  const Json* memory = loaded.header.find("memory");
  CHECK(figure(memory, "total") > figure(memory, "weights") && figure(memory, "weights") > 0);
  CHECK(figure(memory, "available") >= figure(memory, "total"));
  CHECK(!loaded.progress.empty());
  // The same weights with other moments are another state.
  const Answer small = with_path(engine, "load_weights", path_of("weights"), {{"moments", "int8"}});
  CHECK(small.ok() && small.text("weights") == weights && small.state() != state);
  CHECK(figure(small.header.find("memory"), "moments") < figure(memory, "moments") / 3);
  CHECK(update(engine, small.state()).ok());
}

void an_exported_folder_holds_the_same_model() {
  ForkedEngine engine;
  const std::string state = engine.start();
  const std::string weights = engine.call("held").text("weights");
  const Json::Object whole = export_of(state, "merged", Json::Array{Json(5), Json(2)});
  const Answer written = with_path(engine, "export_hf", path_of("model"), whole);
  CHECK(written.ok() && written.header.find("files")->array()->size() >= 2);
  CHECK(with_path(engine, "export_hf", path_of("model"), whole).error().starts_with("BadInput"));
  const Answer loaded = with_path(engine, "load_hf", path_of("model"));
  CHECK(loaded.ok() && loaded.text("weights") == weights && loaded.state() == state);
  CHECK(write_json(*loaded.header.find("eos_tokens")) == "[2,5]");
  CHECK(with_path(engine, "export_hf", path_of("peft"), export_of(state, "peft")).error().find("has no adapters") != std::string::npos);
  CHECK(with_path(engine, "export_hf", path_of("x"), export_of(state, "merged", Json::Array{Json(71)})).error().find("not a token of this model") !=
        std::string::npos);
  CHECK(with_path(engine, "load_hf", path_of("nowhere")).error().starts_with("BadFile: no folder"));
}

// A wrong request, a damaged file and a failing disk give different errors, because only a damaged file may be deleted.
void errors_tell_bad_requests_files_and_disks_apart() {
  ForkedEngine engine;
  const std::string state = engine.start();
  CHECK(engine.call(save_request(state, path_of("whole"))).ok());
  const auto size = std::filesystem::file_size(path_of("whole"));
  std::filesystem::copy_file(path_of("whole"), path_of("half"));
  std::filesystem::resize_file(path_of("half"), size / 2);
  CHECK(with_path(engine, "load_state", path_of("half")).error().starts_with("BadFile: state file " + path_of("half")));
  std::filesystem::create_directory(path_of("a-folder"));
  CHECK(with_path(engine, "load_state", path_of("a-folder")).error().starts_with("Io: not a regular file"));
  CHECK(with_path(engine, "load_state", path_of("missing")).error().starts_with("Io: cannot open"));
  CHECK(engine.call(save_request(state, path_of("missing/state"))).error().starts_with("Io: cannot create"));
  Json lora = lora_json_of(1);
  lora.set("rank", 0);
  CHECK(with_path(engine, "load_weights", path_of("weights"), {{"lora", lora}}).error().starts_with("BadInput"));
  Json gone = update_request(state, {path_of("no-batch"), state}, mini_batch_count, state);
  CHECK(engine.call(std::move(gone)).error().starts_with("Io: cannot open"));
  CHECK(engine.call("held").state() == state);
}

void adapters_need_the_base_they_were_trained_on() {
  ForkedEngine engine;
  const std::string state = engine.start(1, {{"lora", lora_json_of(3)}});
  const std::string base = engine.call("held").text("weights");
  CHECK(with_path(engine, "save_weights", path_of("base"), {{"weights", base}}).ok());
  const Answer updated = update(engine, state);
  const std::string after = updated.state();
  CHECK(updated.ok() && after != state);
  CHECK(figure(engine.call(ForkedEngine::load_request({{"lora", lora_json_of(3)}})).header.find("parameters"), "trained") < 20'000);
  CHECK(engine.call(save_request(state, path_of("first"))).ok());
  const Answer first = with_path(engine, "load_state", path_of("first"));
  CHECK(figure(first.header.find("parameters"), "model") > figure(first.header.find("parameters"), "trained"));
  CHECK(first.header.find("architecture") != nullptr && update(engine, state).state() == after);
  // An update changes only the adapters.
  CHECK(engine.call("held").text("weights") == base);
  CHECK(engine.call(save_request(after, path_of("adapters"))).ok());
  CHECK(std::filesystem::file_size(path_of("adapters")) < std::filesystem::file_size(path_of("base")));

  // The base is the held weights.
  CHECK(engine.call(ForkedEngine::load_request({{"lora", lora_json_of(4)}})).ok());
  CHECK(with_path(engine, "load_state", path_of("adapters")).state() == after);

  ForkedEngine fresh;
  fresh.greet();
  CHECK(with_path(fresh, "load_state", path_of("adapters")).error().starts_with("WrongBase"));
  CHECK(fresh.call(ForkedEngine::load_request({{"seed", 8}})).ok());
  CHECK(with_path(fresh, "load_state", path_of("adapters")).error().starts_with("WrongBase"));
  const std::string other = fresh.call("held").text("weights");
  CHECK(with_path(fresh, "save_weights", path_of("other-base"), {{"weights", other}}).ok());
  const Answer wrong = with_path(fresh, "load_state", path_of("adapters"), {{"base", path_of("other-base")}});
  CHECK(wrong.error().starts_with("WrongBase") && wrong.error().find(base) != std::string::npos &&
        wrong.error().find(other) != std::string::npos);
  const Answer loaded = with_path(fresh, "load_state", path_of("adapters"), {{"base", path_of("base")}});
  CHECK(loaded.ok() && loaded.state() == after && loaded.text("weights") == base);
  // Both engines continue in the same way.
  CHECK(update(fresh, after).state() == update(engine, after).state());

  // A merged export is a complete model; an adapter export is only the adapter.
  const std::string last = fresh.call("held").state();
  CHECK(with_path(fresh, "export_hf", path_of("merged"), export_of(last, "merged")).ok());
  CHECK(with_path(fresh, "export_hf", path_of("adapter"), export_of(last, "peft", {}, "some/base")).ok());
  CHECK(std::filesystem::exists(folder / "adapter" / "adapter_model.safetensors"));
  std::ifstream config(folder / "adapter" / "adapter_config.json");
  CHECK(std::string(std::istreambuf_iterator<char>(config), {}).find("\"base_model_name_or_path\":\"some/base\"") != std::string::npos);
  CHECK(with_path(fresh, "load_hf", path_of("merged")).ok());
}

void a_kl_term_needs_its_reference() {
  ForkedEngine engine;
  const std::string state = engine.start();
  const std::string weights = engine.call("held").text("weights");
  const Json::Object kl{{"kl_weight", 0.1}, {"kl_estimator", "k3"}};
  CHECK(update(engine, state, {{"reference", weights}}, kl).error().starts_with("WrongReference: no reference weights are loaded"));
  CHECK(update(engine, state, {}, kl).error() == "BadInput: reference is missing");
  CHECK(set_reference(engine, "held").text("reference") == weights);
  CHECK(update(engine, state, {{"reference", state}}, kl).error().starts_with("WrongReference: holds reference " + weights));
  const std::string first = update(engine, state, {{"reference", weights}}, kl).state();
  // The reference does not change when the weights do.
  CHECK(engine.call("held").text("reference") == weights && engine.call(Json::Object{{"verb", "held"}, {"weights", true}}).text("weights") != weights);
  const Answer second = update(engine, first, {{"reference", weights}}, kl);
  CHECK(second.ok() && figure(second.header.find("metrics"), "kl") > 0);

  // A reference from a file gives the same results.
  ForkedEngine other;
  CHECK(other.start() == state);
  CHECK(with_path(other, "save_weights", path_of("reference"), {{"weights", weights}}).ok());
  CHECK(update(other, state).ok());
  CHECK(set_reference(other, "path", path_of("reference")).text("reference") == weights);
  CHECK(with_path(other, "load_weights", path_of("reference")).state() == state);
  CHECK(other.call("held").text("reference") == weights);
  CHECK(update(other, state, {{"reference", weights}}, kl).state() == first);
  CHECK(update(other, first, {{"reference", weights}}, kl).state() == second.state());
  CHECK(set_reference(other, "none").header.find("reference")->is_null());

  // A model of another architecture clears the reference and does not accept the old one.
  CHECK(set_reference(other, "held").ok());
  Architecture deeper = tiny_architecture();
  deeper.num_hidden_layers = 3;
  CHECK(other.call(ForkedEngine::load_request({{"architecture", architecture_json(deeper)}})).ok());
  CHECK(other.call("held").header.find("reference")->is_null());
  CHECK(set_reference(other, "path", path_of("reference")).error().find("has another architecture") != std::string::npos);
}

void a_lora_reference_is_its_base() {
  ForkedEngine engine;
  const std::string state = engine.start(1, {{"lora", lora_json_of(3)}});
  const std::string base = engine.call("held").text("weights");
  const std::string first = update(engine, state).state();
  CHECK(set_reference(engine, "held").text("reference") == base);
  const Answer second = update(engine, first, {{"reference", base}}, {{"kl_weight", 0.1}, {"kl_estimator", "k3"}});
  CHECK(second.ok() && figure(second.header.find("metrics"), "kl") > 0);
}

void unknown_settings_are_refused() {
  ForkedEngine engine;
  const std::string state = engine.start();
  CHECK(update(engine, state, {}, {{"eps_clip", 0.2}}).error().starts_with("BadInput: loss.eps_clip is not known"));
  CHECK(update(engine, state, {}, {{"kind", "ppo"}}).error().starts_with("BadInput: loss.kind is \"ppo\"; it must be one of regular"));
  CHECK(update(engine, state, {}, {{"reduction", "mean"}}).error().find("token_mean") != std::string::npos);
  CHECK(update(engine, state, {}, {{"kind", "dual_clip"}}).error() == "BadInput: loss.clip_ratio_c is missing");
  CHECK(update(engine, state, {}, {{"kind", "cispo"}}).error() == "BadInput: loss.cispo_eps_clip_low is missing");
  CHECK(update(engine, state, {}, {{"kl_weight", 0.1}}).error() == "BadInput: loss.kl_estimator is missing");
  CHECK(update(engine, state, {}, {{"kind", "reinforce"}}).error().starts_with("BadInput: loss.eps_clip_low is not known; loss has kind, reduction"));
  CHECK(update(engine, state, {}, {{"kind", "dual_clip"}, {"clip_ratio_c", 0.5}}).error().find("clip_ratio_c") != std::string::npos);
  Json lora = lora_json_of(1);
  lora.set("dropout", 0.1);
  CHECK(engine.call(ForkedEngine::load_request({{"lora", lora}})).error().starts_with("BadInput: lora.dropout is unknown; the keys are rank"));
  lora = lora_json_of(1);
  lora.set("targets", Json::Array{Json("lm_head")});
  CHECK(engine.call(ForkedEngine::load_request({{"lora", lora}})).error().starts_with("BadInput"));
  CHECK(engine.call(ForkedEngine::load_request({{"moments", "fp16"}})).error().starts_with("BadInput"));
  CHECK(set_reference(engine, "base").error() == "BadInput: from must be held, path or none");
  CHECK(engine.call("held").state() == state);
  ForkedEngine old;
  Json hello = verb_request("hello");
  hello.set("protocol", 1);
  CHECK(old.call(std::move(hello)).error() == "VersionMismatch: this engine speaks protocol 2, not 1");
  CHECK(old.call("held").error() == "BadInput: the first verb must be hello");
  CHECK(old.greet(1, {{"pass_rows", 1000}}).error() == "BadInput: pass_rows must be a multiple of 512");
}

void the_size_of_a_pass_changes_no_bit() {
  std::string expected;
  for (const bool recompute : {false, true}) {
    for (const int rows : {512, 4096}) {
      ForkedEngine engine;
      CHECK(engine.greet(2, {{"pass_rows", rows}, {"recompute", recompute}}).ok());
      const std::string state = engine.call(ForkedEngine::load_request()).state();
      const OwnedBatch batch = group_batch(tiny_architecture().vocab_size, 1, 3, 100, 4, 60);
      const WrittenBatch file = write_batch(path_of("large"), batch, state, 1);
      const std::string after = engine.call(update_request(state, file, 1, "first")).state();
      CHECK(after.size() == 64 && after != state);
      if (expected.empty()) expected = after;
      CHECK(after == expected);
    }
  }
}

void a_model_that_does_not_fit_is_refused_with_figures() {
  ForkedEngine engine;
  const std::string state = engine.start();
  Architecture huge = tiny_architecture();
  huge.vocab_size = 1 << 20;
  huge.hidden_size = 1 << 16;
  huge.intermediate_size = 1 << 18;
  huge.num_hidden_layers = 64;
  const Answer refused = engine.call(ForkedEngine::load_request({{"architecture", architecture_json(huge)}}));
  CHECK(refused.error().starts_with("OutOfMemory: training this model needs") && refused.error().find("GiB") != std::string::npos);
  const Json* memory = refused.header.find("error")->find("memory");
  CHECK(figure(memory, "total") > figure(memory, "available") && figure(memory, "weights") > 1e12);
  CHECK(refused.state() == state && update(engine, state).ok());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers take terabytes of address space
// Under a memory limit, a batch that does not fit is refused before any work, and the engine continues.
void a_batch_that_does_not_fit_is_refused_with_its_rows() {
  ForkedEngine engine({.prepare = [] {
    const rlimit limit{std::size_t{1} << 30, std::size_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
  }});
  engine.greet();
  Architecture wide = tiny_architecture();
  wide.max_position_embeddings = 32768;
  wide.hidden_size = 256;
  wide.intermediate_size = 1024;
  wide.num_hidden_layers = 4;
  const std::string state = engine.call(ForkedEngine::load_request({{"architecture", architecture_json(wide)}})).state();
  CHECK(state.size() == 64);
  const OwnedBatch large = group_batch(wide.vocab_size, 1, 16, 9, 8, 2000);
  const WrittenBatch file = write_batch(path_of("too-large"), large, state, 1);
  const Answer refused = engine.call(update_request(state, file, 1, "first"));
  std::printf("%s\n", refused.error().c_str());
  CHECK(refused.error().starts_with("BadBatch: the largest mini-batch has 256144 rows"));
  CHECK(refused.error().find("MiB are free") != std::string::npos || refused.error().find("GiB are free") != std::string::npos);
  const WrittenBatch small = write_batch(path_of("small"), group_batch(wide.vocab_size, 1, 2, 9, 2, 6), state, 1);
  CHECK(engine.call(update_request(state, small, 1, "second")).ok());
}
#endif

}  // namespace

int main() {
  std::filesystem::create_directory(folder);
  saved_weights_load_as_the_same_state();
  an_exported_folder_holds_the_same_model();
  errors_tell_bad_requests_files_and_disks_apart();
  adapters_need_the_base_they_were_trained_on();
  a_kl_term_needs_its_reference();
  a_lora_reference_is_its_base();
  unknown_settings_are_refused();
  the_size_of_a_pass_changes_no_bit();
  a_model_that_does_not_fit_is_refused_with_figures();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  a_batch_that_does_not_fit_is_refused_with_its_rows();
#endif
  std::filesystem::remove_all(folder);
  return test::finish();
}
