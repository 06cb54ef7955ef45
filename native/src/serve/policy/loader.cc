#include "serve/policy/loader.h"

#include <filesystem>
#include <utility>

#include "state/digest/digest.h"
#include "state/hf/hf_folder.h"
#include "state/state_file.h"
#include "state/weights_file.h"

namespace longhaul {
namespace {

Json token_list(const std::vector<std::int32_t>& tokens) {
  Json::Array list;
  for (const std::int32_t token : tokens) list.emplace_back(token);
  return list;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

}  // namespace

LoadedModel Loader::random(const Request& request) const {
  const Architecture architecture = architecture_from_json(request.field("architecture"));
  const double range = request.number("initializer_range");
  if (!(range > 0)) throw RequestError("BadInput", "initializer_range must be above 0");
  const auto seed = static_cast<std::uint64_t>(request.whole("seed", 0, std::int64_t{1} << 53));
  const TrainedAs trained = read_trained(request);
  if (trained.lora) validate(*trained.lora, architecture);
  Json memory = plan(architecture, trained.lora, trained.moments);
  auto weights = std::make_shared<Weights>(architecture, &pool_);
  weights->initialize(range, seed, &pool_);
  std::string digest = weights_digest(*weights, pool_);
  return finish(std::move(weights), std::move(digest), trained, std::move(memory));
}

LoadedModel Loader::folder(const Request& request) const {
  const std::string path = request.text("path");
  const TrainedAs trained = read_trained(request);
  const HfModel model = read_hf_model(path);
  if (trained.lora) validate(*trained.lora, model.architecture);
  Json memory = plan(model.architecture, trained.lora, trained.moments);
  LoadedHf loaded = load_hf(path, pool_, progress_);
  LoadedModel result = finish(std::move(loaded.weights), std::move(loaded.digest), trained, std::move(memory));
  result.fields.set("eos_tokens", token_list(model.eos_tokens));
  return result;
}

LoadedModel Loader::weights_file(const Request& request) const {
  const std::string path = request.text("path");
  const TrainedAs trained = read_trained(request);
  const Architecture architecture = read_weights_architecture(path);
  if (trained.lora) validate(*trained.lora, architecture);
  Json memory = plan(architecture, trained.lora, trained.moments);
  LoadedWeights loaded = load_weights(path, pool_, progress_);
  return finish(std::move(loaded.weights), std::move(loaded.digest), trained, std::move(memory));
}

LoadedModel Loader::state_file(const Request& request) const {
  const std::string path = request.text("path");
  const StateHeader header = read_state_header(path);
  Base base;
  if (header.lora) base = held_base(header.base);
  const bool shared = base.weights != nullptr;
  Json memory = plan(header.architecture, header.lora, header.moments, shared);
  if (header.lora && !shared) {
    if (!request.has("base")) {
      throw RequestError("WrongBase", "state file " + path + " needs the base weights " + header.base +
                                          ", which are not loaded: name their file or folder in `base`");
    }
    const std::string under = request.text("base");
    base = read_base(under);
    if (base.digest != header.base) {
      throw RequestError("WrongBase", "state file " + path + " needs the base weights " + header.base + ", but " + under + " has " +
                                          base.digest);
    }
  }
  LoadedState loaded = load_state(path, pool_, {base.weights, base.digest}, progress_);
  LoadedModel result;
  result.policy = std::move(loaded.policy);
  result.digest = std::move(loaded.digest);
  result.weights_digest = std::move(loaded.weights);
  result.fields.set("weights", result.weights_digest);
  result.fields.set("memory", std::move(memory));
  return result;
}

Reference Loader::reference_at(const std::string& path) const {
  const Architecture architecture = is_folder(path) ? read_hf_model(path).architecture : read_weights_architecture(path);
  if (!(architecture == held_->policy->architecture())) {
    throw RequestError("BadInput", "the reference at " + path + " has another architecture than the loaded model: " +
                                       write_json(architecture_json(architecture), KeyOrder::sorted));
  }
  memory_.plan_reference(*held_->policy);
  Base base = read_base(path);
  return {std::move(base.weights), std::move(base.digest)};
}

// A reference other than the model's own base needs memory of its own.
Json Loader::plan(const Architecture& architecture, const std::optional<LoraSettings>& lora, MomentFormat moments,
                  bool shared) const {
  const bool kept = reference_.weights && reference_.weights->architecture() == architecture;
  const bool is_base = shared && held_ && reference_.weights == held_->policy->shared_weights();
  return memory_.plan_load(architecture, lora, moments, kept && !is_base, shared);
}

LoadedModel Loader::finish(std::shared_ptr<Weights> weights, std::string digest, const TrainedAs& trained, Json memory) const {
  LoadedModel result;
  if (trained.lora) {
    result.policy = std::make_unique<Policy>(std::shared_ptr<const Weights>(std::move(weights)), *trained.lora,
                                             trained.lora_seed, trained.moments);
  } else {
    result.policy = std::make_unique<Policy>(std::move(weights), trained.moments);
  }
  result.digest = state_digest(*result.policy, pool_, trained.lora ? digest : std::string());
  result.fields.set("weights", digest);
  result.fields.set("memory", std::move(memory));
  result.weights_digest = std::move(digest);
  return result;
}

Loader::Base Loader::held_base(const std::string& digest) const {
  if (held_ && held_->weights_digest == digest) return {held_->policy->shared_weights(), digest};
  if (reference_.weights && reference_.digest == digest) return {reference_.weights, digest};
  return {};
}

Loader::Base Loader::read_base(const std::string& path) const {
  if (is_folder(path)) {
    LoadedHf loaded = load_hf(path, pool_, progress_);
    return {std::move(loaded.weights), std::move(loaded.digest)};
  }
  LoadedWeights loaded = load_weights(path, pool_, progress_);
  return {std::move(loaded.weights), std::move(loaded.digest)};
}

}  // namespace longhaul
