#include "state/hf/hf_config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "model/rope.h"

namespace longhaul {
namespace {

std::string shown(const Json& value) {
  std::string text = write_json(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

// The members of an object. As in transformers, null counts as missing. Errors begin with the object's place in the file.
class HfMembers {
 public:
  HfMembers(const Json& value, std::string prefix) : value_(value), prefix_(std::move(prefix)) {}

  const Json* find(const char* key) const {
    const Json* member = value_.find(key);
    return member == nullptr || member->is_null() ? nullptr : member;
  }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    const Json* member = find(key);
    throw HfError(prefix_ + key + (member == nullptr ? " is missing; " : " is " + shown(*member) + "; ") + expected);
  }

  std::optional<int> whole(const char* key) const {
    const Json* member = find(key);
    if (member == nullptr) return std::nullopt;
    const double* number = member->number();
    if (number == nullptr || *number != std::floor(*number) || *number < 0 || *number > std::numeric_limits<int>::max()) {
      refuse(key, "it must be a whole number");
    }
    return static_cast<int>(*number);
  }

  int required_whole(const char* key) const {
    const auto number = whole(key);
    if (!number) refuse(key, "it must be a whole number");
    return *number;
  }

  std::optional<double> real(const char* key) const {
    const Json* member = find(key);
    if (member == nullptr) return std::nullopt;
    if (member->number() == nullptr) refuse(key, "it must be a number");
    return *member->number();
  }

  std::optional<bool> flag(const char* key) const {
    const Json* member = find(key);
    if (member == nullptr) return std::nullopt;
    if (member->boolean() == nullptr) refuse(key, "it must be true or false");
    return *member->boolean();
  }

  std::optional<std::string> text(const char* key) const {
    const Json* member = find(key);
    if (member == nullptr) return std::nullopt;
    if (member->string() == nullptr) refuse(key, "it must be a string");
    return *member->string();
  }

 private:
  const Json& value_;
  std::string prefix_;
};

struct Rope {
  std::optional<double> theta;
  std::optional<YarnScaling> yarn;
};

// `rope_scaling` of transformers 4, or `rope_parameters` of transformers 5. Either may have the keys of the other.
Rope parse_rope(const Json& value, const std::string& key, int max_position_embeddings) {
  if (value.object() == nullptr) throw HfError(key + " is " + shown(value) + "; it must be an object or null");
  const HfMembers members(value, key + ".");
  Rope rope;
  rope.theta = members.real("rope_theta");
  if (members.real("partial_rotary_factor").value_or(1) != 1) {
    members.refuse("partial_rotary_factor", "partly rotated heads are not supported");
  }
  const char* type_key = members.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string type = members.text(type_key).value_or("default");
  if (type == "default") return rope;
  if (type != "yarn") members.refuse(type_key, "supported are default and yarn");
  if (!members.flag("truncate").value_or(true)) members.refuse("truncate", "only true is supported (the bounds of the ramp are rounded to whole numbers)");
  YarnScaling yarn;
  const auto factor = members.real("factor");
  if (!factor || !(*factor >= 1)) members.refuse("factor", "it must be a number of at least 1");
  yarn.factor = *factor;
  yarn.original_max_position_embeddings = members.whole("original_max_position_embeddings").value_or(max_position_embeddings);
  // As in transformers, 0 counts as missing.
  const auto or_default = [&](const char* name, double otherwise) {
    const double given = members.real(name).value_or(0);
    return given != 0 ? given : otherwise;
  };
  yarn.beta_fast = or_default("beta_fast", 32);
  yarn.beta_slow = or_default("beta_slow", 1);
  const double scale = or_default("mscale", 0), scale_all = or_default("mscale_all_dim", 0);
  const double usual = scale != 0 && scale_all != 0 ? yarn_magnitude(yarn.factor, scale) / yarn_magnitude(yarn.factor, scale_all)
                                                    : yarn_magnitude(yarn.factor);
  yarn.attention_factor = members.real("attention_factor").value_or(usual);
  rope.yarn = yarn;
  return rope;
}

// Two keys may give the same value. Returns the value that is present; refuses two values that differ.
template <class T>
std::optional<T> agreed(const std::optional<T>& one, const std::optional<T>& other, const std::string& what) {
  if (one && other && !(*one == *other)) throw HfError(what + " contradict each other; remove one of them");
  return one ? one : other;
}

void read_rope(const HfMembers& config, Architecture& architecture) {
  Rope old, current;
  const Json* scaling = config.find("rope_scaling");
  const Json* parameters = config.find("rope_parameters");
  if (scaling != nullptr) old = parse_rope(*scaling, "rope_scaling", architecture.max_position_embeddings);
  if (parameters != nullptr) current = parse_rope(*parameters, "rope_parameters", architecture.max_position_embeddings);
  const auto outer = agreed(config.real("rope_theta"), old.theta, "rope_theta and rope_scaling.rope_theta");
  // The default of transformers is 10000.
  architecture.rope_theta = agreed(outer, current.theta, "rope_theta and rope_parameters.rope_theta").value_or(10000);
  if (scaling != nullptr && parameters != nullptr && old.yarn != current.yarn) {
    throw HfError("rope_scaling and rope_parameters contradict each other; remove one of them");
  }
  architecture.yarn = old.yarn ? old.yarn : current.yarn;
}

ModelType read_model_type(const HfMembers& config) {
  const auto type = config.text("model_type");
  for (const ModelType known : {ModelType::qwen3, ModelType::qwen2}) {
    if (type == name(known)) return known;
  }
  config.refuse("model_type", "supported are qwen3 (Qwen3, dense) and qwen2 (Qwen2, Qwen2.5)");
}

const char* class_name(ModelType type) { return type == ModelType::qwen3 ? "Qwen3ForCausalLM" : "Qwen2ForCausalLM"; }

// Refuses settings under which the model would compute something else than this engine does.
void refuse_variants(const HfMembers& config, ModelType type) {
  if (const Json* classes = config.find("architectures")) {
    const Json::Array* names = classes->array();
    const bool causal = names != nullptr && std::any_of(names->begin(), names->end(), [&](const Json& item) {
      return item.string() != nullptr && *item.string() == class_name(type);
    });
    if (!causal) config.refuse("architectures", std::string("a language model of this type is ") + class_name(type));
  }
  if (config.text("hidden_act").value_or("silu") != "silu") config.refuse("hidden_act", "only silu is supported");
  if (config.flag("use_sliding_window").value_or(false)) {
    config.refuse("use_sliding_window", "sliding windows are not supported: every token attends to all earlier tokens");
  }
  if (const Json* layers = config.find("layer_types")) {
    const Json::Array* types = layers->array();
    const bool full = types != nullptr && std::all_of(types->begin(), types->end(), [](const Json& item) {
      return item.string() != nullptr && *item.string() == "full_attention";
    });
    if (!full) config.refuse("layer_types", "only full_attention is supported");
  }
  if (type == ModelType::qwen3 && config.flag("attention_bias").value_or(false)) {
    config.refuse("attention_bias", "Qwen3 with biases is not supported");
  }
  if (config.find("quantization_config") != nullptr) {
    config.refuse("quantization_config", "quantised weights are not supported; use the model's F32, F16 or BF16 weights");
  }
}

Json rope_json(const Architecture& architecture) {
  Json json;
  json.set("rope_type", architecture.yarn ? "yarn" : "default");
  if (architecture.yarn) {
    json.set("factor", architecture.yarn->factor);
    json.set("original_max_position_embeddings", architecture.yarn->original_max_position_embeddings);
    json.set("beta_fast", architecture.yarn->beta_fast);
    json.set("beta_slow", architecture.yarn->beta_slow);
    json.set("attention_factor", architecture.yarn->attention_factor);
  }
  return json;
}

}  // namespace

HfConfig parse_hf_config(std::string_view text) {
  std::string error;
  const auto json = parse_json(text, error);
  if (!json) throw HfError("is not JSON: " + error);
  if (json->object() == nullptr) throw HfError("is " + shown(*json) + ", not an object");
  const HfMembers config(*json, "");
  HfConfig parsed;
  Architecture& architecture = parsed.architecture;
  architecture.model_type = read_model_type(config);
  refuse_variants(config, architecture.model_type);
  architecture.vocab_size = config.required_whole("vocab_size");
  architecture.hidden_size = config.required_whole("hidden_size");
  architecture.intermediate_size = config.required_whole("intermediate_size");
  architecture.num_hidden_layers = config.required_whole("num_hidden_layers");
  architecture.num_attention_heads = config.required_whole("num_attention_heads");
  if (architecture.num_attention_heads == 0) config.refuse("num_attention_heads", "it must be at least 1");
  architecture.num_key_value_heads = config.whole("num_key_value_heads").value_or(architecture.num_attention_heads);
  // transformers' defaults for missing keys. For Qwen3, head_dim is then 128, whatever the hidden size.
  const int derived = architecture.model_type == ModelType::qwen3
                          ? 128
                          : architecture.hidden_size / architecture.num_attention_heads;
  architecture.head_dim = config.whole("head_dim").value_or(derived);
  architecture.rms_norm_eps = config.real("rms_norm_eps").value_or(1e-6);
  architecture.tie_word_embeddings = config.flag("tie_word_embeddings").value_or(false);
  architecture.max_position_embeddings = config.whole("max_position_embeddings").value_or(32768);
  read_rope(config, architecture);
  try {
    validate(architecture);
  } catch (const std::invalid_argument& problem) {
    throw HfError(problem.what());
  }
  parsed.eos_tokens = parse_eos_tokens(*json);
  return parsed;
}

std::vector<std::int32_t> parse_eos_tokens(const Json& config) {
  std::vector<std::int32_t> tokens;
  const Json* entry = config.find("eos_token_id");
  if (entry == nullptr || entry->is_null()) return tokens;
  const auto take = [&](const Json& item) {
    const double* number = item.number();
    if (number == nullptr || *number != std::floor(*number) || *number < 0 || *number > std::numeric_limits<std::int32_t>::max()) {
      throw HfError("eos_token_id is " + shown(*entry) + "; it must be a token id, a list of token ids, or null");
    }
    tokens.push_back(static_cast<std::int32_t>(*number));
  };
  if (const Json::Array* items = entry->array()) {
    for (const Json& item : *items) take(item);
  } else {
    take(*entry);
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

Json eos_json(std::span<const std::int32_t> eos_tokens) {
  if (eos_tokens.size() == 1) return Json(eos_tokens[0]);
  Json::Array items;
  for (const std::int32_t token : eos_tokens) items.emplace_back(token);
  return Json(std::move(items));
}

Json hf_config_json(const Architecture& architecture, std::span<const std::int32_t> eos_tokens, std::string_view dtype) {
  Json parameters = rope_json(architecture);
  parameters.set("rope_theta", architecture.rope_theta);
  Json json;
  json.set("architectures", Json::Array{Json(class_name(architecture.model_type))});
  json.set("model_type", name(architecture.model_type));
  json.set("vocab_size", architecture.vocab_size);
  json.set("hidden_size", architecture.hidden_size);
  json.set("intermediate_size", architecture.intermediate_size);
  json.set("num_hidden_layers", architecture.num_hidden_layers);
  json.set("num_attention_heads", architecture.num_attention_heads);
  json.set("num_key_value_heads", architecture.num_key_value_heads);
  json.set("head_dim", architecture.head_dim);
  json.set("hidden_act", "silu");
  json.set("max_position_embeddings", architecture.max_position_embeddings);
  json.set("rms_norm_eps", architecture.rms_norm_eps);
  json.set("tie_word_embeddings", architecture.tie_word_embeddings);
  json.set("attention_dropout", 0);
  if (architecture.model_type == ModelType::qwen3) json.set("attention_bias", false);
  json.set("use_sliding_window", false);
  json.set("sliding_window", nullptr);
  json.set("use_cache", true);
  // transformers 4 reads the first two, transformers 5 the third.
  json.set("rope_theta", architecture.rope_theta);
  json.set("rope_scaling", architecture.yarn ? rope_json(architecture) : Json(nullptr));
  json.set("rope_parameters", std::move(parameters));
  json.set("torch_dtype", std::string(dtype));
  json.set("dtype", std::string(dtype));
  if (!eos_tokens.empty()) json.set("eos_token_id", eos_json(eos_tokens));
  return json;
}

}  // namespace longhaul
