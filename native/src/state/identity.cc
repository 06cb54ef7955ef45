#include "state/identity.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "model/rope.h"

namespace longhaul {
namespace {

// The members of an object, by name. Errors begin with the object's name.
class Members {
 public:
  Members(const Json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (value.object() == nullptr) throw std::invalid_argument(where_ + " must be an object, not " + shown(value));
  }

  void refuse_others(std::initializer_list<std::string_view> known) const {
    for (const JsonMember& member : *value_.object()) {
      if (std::find(known.begin(), known.end(), member.name) != known.end()) continue;
      std::string list;
      for (const std::string_view name : known) list += (list.empty() ? "" : ", ") + std::string(name);
      throw std::invalid_argument(where_ + "." + member.name + " is unknown; the keys are " + list);
    }
  }

  bool has(const char* key) const { return value_.find(key) != nullptr; }

  int whole(const char* key) const {
    const double* number = find(key, "a whole number").number();
    if (number == nullptr || *number != std::floor(*number) || *number < 0 || *number > std::numeric_limits<int>::max()) {
      refuse(key, "a whole number");
    }
    return static_cast<int>(*number);
  }

  double real(const char* key) const {
    const double* number = find(key, "a number").number();
    if (number == nullptr) refuse(key, "a number");
    return *number;
  }

  bool flag(const char* key) const {
    const bool* flag = find(key, "true or false").boolean();
    if (flag == nullptr) refuse(key, "true or false");
    return *flag;
  }

  const std::string& text(const char* key, const char* allowed) const {
    const std::string* text = find(key, allowed).string();
    if (text == nullptr) refuse(key, allowed);
    return *text;
  }

  const Json& find(const char* key, const char* allowed) const {
    const Json* member = value_.find(key);
    if (member == nullptr) throw std::invalid_argument(where_ + "." + key + " is missing; it must be " + allowed);
    return *member;
  }

  [[noreturn]] void refuse(const char* key, const std::string& allowed) const {
    throw std::invalid_argument(where_ + "." + key + " is " + shown(*value_.find(key)) + "; it must be " + allowed);
  }

 private:
  static std::string shown(const Json& value) {
    std::string text = write_json(value);
    if (text.size() > 80) text = text.substr(0, 77) + "...";
    return text;
  }

  const Json& value_;
  std::string where_;
};

Json yarn_json(const YarnScaling& yarn) {
  Json json;
  json.set("factor", yarn.factor);
  json.set("original_max_position_embeddings", yarn.original_max_position_embeddings);
  json.set("beta_fast", yarn.beta_fast);
  json.set("beta_slow", yarn.beta_slow);
  json.set("attention_factor", yarn.attention_factor);
  return json;
}

YarnScaling yarn_from_json(const Json& value) {
  const Members members(value, "architecture.yarn");
  members.refuse_others({"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor"});
  YarnScaling yarn;
  yarn.factor = members.real("factor");
  yarn.original_max_position_embeddings = members.whole("original_max_position_embeddings");
  if (members.has("beta_fast")) yarn.beta_fast = members.real("beta_fast");
  if (members.has("beta_slow")) yarn.beta_slow = members.real("beta_slow");
  yarn.attention_factor = members.has("attention_factor") ? members.real("attention_factor") : yarn_magnitude(yarn.factor);
  return yarn;
}

constexpr LoraTarget lora_targets[] = {LoraTarget::q_proj,    LoraTarget::k_proj,  LoraTarget::v_proj,   LoraTarget::o_proj,
                                   LoraTarget::gate_proj, LoraTarget::up_proj, LoraTarget::down_proj};

std::string target_names() {
  std::string list;
  for (const LoraTarget target : lora_targets) list += (list.empty() ? "" : ", ") + std::string(name(target));
  return list;
}

}  // namespace

Json architecture_json(const Architecture& architecture) {
  Json json;
  json.set("model_type", name(architecture.model_type));
  json.set("vocab_size", architecture.vocab_size);
  json.set("hidden_size", architecture.hidden_size);
  json.set("intermediate_size", architecture.intermediate_size);
  json.set("num_hidden_layers", architecture.num_hidden_layers);
  json.set("num_attention_heads", architecture.num_attention_heads);
  json.set("num_key_value_heads", architecture.num_key_value_heads);
  json.set("head_dim", architecture.head_dim);
  json.set("rms_norm_eps", architecture.rms_norm_eps);
  json.set("rope_theta", architecture.rope_theta);
  if (architecture.yarn) json.set("yarn", yarn_json(*architecture.yarn));
  json.set("tie_word_embeddings", architecture.tie_word_embeddings);
  json.set("max_position_embeddings", architecture.max_position_embeddings);
  return json;
}

Architecture architecture_from_json(const Json& value) {
  const Members members(value, "architecture");
  members.refuse_others({"model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                         "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "yarn",
                         "tie_word_embeddings", "max_position_embeddings"});
  Architecture architecture;
  if (members.has("model_type")) {
    const std::string& type = members.text("model_type", "qwen3 or qwen2");
    if (type != name(ModelType::qwen3) && type != name(ModelType::qwen2)) members.refuse("model_type", "qwen3 or qwen2");
    architecture.model_type = type == name(ModelType::qwen2) ? ModelType::qwen2 : ModelType::qwen3;
  }
  architecture.vocab_size = members.whole("vocab_size");
  architecture.hidden_size = members.whole("hidden_size");
  architecture.intermediate_size = members.whole("intermediate_size");
  architecture.num_hidden_layers = members.whole("num_hidden_layers");
  architecture.num_attention_heads = members.whole("num_attention_heads");
  architecture.num_key_value_heads = members.whole("num_key_value_heads");
  architecture.head_dim = members.whole("head_dim");
  architecture.rms_norm_eps = members.real("rms_norm_eps");
  architecture.rope_theta = members.real("rope_theta");
  if (members.has("yarn")) architecture.yarn = yarn_from_json(*value.find("yarn"));
  architecture.tie_word_embeddings = members.flag("tie_word_embeddings");
  architecture.max_position_embeddings = members.whole("max_position_embeddings");
  validate(architecture);
  return architecture;
}

Json lora_json(const LoraSettings& settings) {
  Json::Array targets;
  for (const LoraTarget target : settings.targets) targets.emplace_back(name(target));
  Json json;
  json.set("rank", settings.rank);
  json.set("alpha", settings.alpha);
  json.set("targets", std::move(targets));
  return json;
}

LoraSettings lora_from_json(const Json& value) {
  const Members members(value, "lora");
  members.refuse_others({"rank", "alpha", "targets", "seed"});
  LoraSettings settings;
  settings.rank = members.whole("rank");
  settings.alpha = members.real("alpha");
  const std::string allowed = "a list of targets from " + target_names();
  const Json::Array* targets = members.find("targets", allowed.c_str()).array();
  if (targets == nullptr || targets->empty()) members.refuse("targets", allowed);
  for (const Json& item : *targets) {
    const auto found = std::find_if(std::begin(lora_targets), std::end(lora_targets), [&](LoraTarget target) {
      return item.string() != nullptr && *item.string() == name(target);
    });
    if (found == std::end(lora_targets)) members.refuse("targets", allowed);
    settings.targets.push_back(*found);
  }
  std::sort(settings.targets.begin(), settings.targets.end());
  if (std::adjacent_find(settings.targets.begin(), settings.targets.end()) != settings.targets.end()) {
    members.refuse("targets", allowed + ", each once");
  }
  return settings;
}

MomentFormat moment_format_from(std::string_view text) {
  for (const MomentFormat format : {MomentFormat::fp32, MomentFormat::int8}) {
    if (text == name(format)) return format;
  }
  throw std::invalid_argument("moments is " + std::string(text) + "; it must be fp32 or int8");
}

}  // namespace longhaul
