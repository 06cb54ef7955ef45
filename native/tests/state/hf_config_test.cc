// Reads config.json files of transformers 4 and 5, as real models have them, and refuses settings that are not supported.
#include "state/hf/hf_config.h"

#include <cmath>
#include <string>

#include "support/checks.h"
#include "support/policies.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

// Qwen3-8B as published (transformers 4).
const std::string qwen3_config = R"({
  "architectures": ["Qwen3ForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
  "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32,
  "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
})";

// Qwen2.5-0.5B: no head_dim, and a sliding window that is not used.
const std::string qwen2_config = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
  "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
  "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
  "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
  "vocab_size": 151936
})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  CHECK(at != std::string::npos);
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

void reads_published_models() {
  const HfConfig big = parse_hf_config(qwen3_config);
  Architecture expected;
  expected.model_type = ModelType::qwen3;
  expected.vocab_size = 151936;
  expected.hidden_size = 4096;
  expected.intermediate_size = 12288;
  expected.num_hidden_layers = 36;
  expected.num_attention_heads = 32;
  expected.num_key_value_heads = 8;
  expected.head_dim = 128;
  expected.rms_norm_eps = 1e-6;
  expected.rope_theta = 1e6;
  expected.tie_word_embeddings = false;
  expected.max_position_embeddings = 40960;
  CHECK(big.architecture == expected);
  CHECK(big.eos_tokens == std::vector<std::int32_t>{151645});
  const HfConfig small = parse_hf_config(qwen2_config);
  CHECK(small.architecture.model_type == ModelType::qwen2 && small.architecture.head_dim == 64);
  CHECK(small.architecture.tie_word_embeddings && small.architecture.has_qkv_bias() && !small.architecture.has_head_norms());
}

// The published numbers of parameters, and PEFT's count for adapters.
void published_models_have_their_numbers_of_parameters() {
  Architecture architecture = parse_hf_config(qwen3_config).architecture;
  CHECK(ParameterLayout(architecture).total == 8'190'735'360);
  CHECK(ParameterLayout(parse_hf_config(qwen2_config).architecture).total == 494'032'768);
  // Qwen3-0.6B
  architecture.hidden_size = 1024;
  architecture.intermediate_size = 3072;
  architecture.num_hidden_layers = 28;
  architecture.num_attention_heads = 16;
  architecture.tie_word_embeddings = true;
  CHECK(ParameterLayout(architecture).total == 596'049'920);
  CHECK(AdapterLayout(architecture, lora_settings(8, 16)).total == 5'046'272);
}

void reads_the_keys_of_transformers_5() {
  const std::string current = with(with(qwen3_config, R"("rope_scaling": null, "rope_theta": 1000000,)",
                                        R"("rope_parameters": {"rope_theta": 5000000, "rope_type": "default"}, "layer_types": ["full_attention", "full_attention"],)"),
                                   "torch_dtype", "dtype");
  CHECK(parse_hf_config(current).architecture.rope_theta == 5e6);
  CHECK(!parse_hf_config(current).architecture.yarn);
  // With neither key, transformers' defaults apply.
  CHECK(parse_hf_config(with(qwen3_config, R"("rope_theta": 1000000,)", "")).architecture.rope_theta == 10000);
  CHECK(parse_hf_config(with(qwen3_config, R"("head_dim": 128,)", "")).architecture.head_dim == 128);
  CHECK(parse_hf_config(with(qwen3_config, R"("tie_word_embeddings": false,)", "")).architecture.tie_word_embeddings == false);
}

void reads_yarn() {
  const auto yarn = [](const std::string& scaling) {
    return parse_hf_config(with(qwen3_config, R"("rope_scaling": null)", scaling)).architecture.yarn;
  };
  const auto old = yarn(R"("rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768})");
  CHECK(old && old->factor == 4 && old->original_max_position_embeddings == 32768 && old->beta_fast == 32 && old->beta_slow == 1);
  CHECK(old && std::abs(old->attention_factor - (0.1 * std::log(4.0) + 1)) < 1e-15);
  CHECK(yarn(R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768})") == old);
  CHECK(yarn(R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000, "factor": 4.0, "original_max_position_embeddings": 32768, "beta_fast": null})") == old);
  const auto own = yarn(R"("rope_scaling": {"rope_type": "yarn", "factor": 2, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.5})");
  CHECK(own && own->beta_fast == 16 && own->beta_slow == 2 && own->attention_factor == 1.5 && own->original_max_position_embeddings == 40960);
  const auto scaled = yarn(R"("rope_scaling": {"rope_type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 1.0})");
  CHECK(scaled && std::abs(scaled->attention_factor - (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1)) < 1e-12);
  CHECK(!yarn(R"("rope_scaling": {"rope_type": "default"})"));
}

void refuses_other_models() {
  const auto refuse = [](const std::string& text, const std::string& part) { CHECK_THROWS(HfError, parse_hf_config(text), part); };
  refuse(with(qwen3_config, R"("model_type": "qwen3")", R"("model_type": "llama")"),
         R"(model_type is "llama"; supported are qwen3 (Qwen3, dense) and qwen2 (Qwen2, Qwen2.5))");
  refuse(with(qwen3_config, R"("model_type": "qwen3",)", ""), "model_type is missing; supported are qwen3");
  refuse(with(qwen3_config, "Qwen3ForCausalLM", "Qwen3ForSequenceClassification"), "architectures is [\"Qwen3ForSequenceClassification\"]");
  refuse(with(qwen3_config, R"("use_sliding_window": false)", R"("use_sliding_window": true)"), "use_sliding_window is true; sliding windows are not supported");
  refuse(with(qwen3_config, R"("use_cache": true)", R"("layer_types": ["full_attention", "sliding_attention"])"), "layer_types is");
  refuse(with(qwen3_config, R"("attention_bias": false)", R"("attention_bias": true)"), "attention_bias is true");
  refuse(with(qwen3_config, R"("hidden_act": "silu")", R"("hidden_act": "gelu")"), "hidden_act is \"gelu\"; only silu is supported");
  refuse(with(qwen3_config, R"("use_cache": true)", R"("quantization_config": {"bits": 4})"), "quantization_config is");
  refuse(with(qwen3_config, R"("rope_scaling": null)", R"("rope_scaling": {"rope_type": "llama3", "factor": 8})"),
         "rope_scaling.rope_type is \"llama3\"; supported are default and yarn");
  refuse(with(qwen3_config, R"("rope_scaling": null)", R"("rope_scaling": {"type": "linear", "factor": 8})"), "rope_scaling.type is \"linear\"");
  refuse(with(qwen3_config, R"("rope_scaling": null)", R"("rope_scaling": {"type": "yarn"})"), "rope_scaling.factor is missing");
  refuse(with(qwen3_config, R"("rope_scaling": null)", R"("rope_scaling": {"type": "yarn", "factor": 2, "truncate": false})"), "truncate");
  refuse(with(qwen3_config, R"("rope_scaling": null)", R"("rope_scaling": 3)"), "rope_scaling is 3");
  refuse(with(qwen3_config, R"("rope_scaling": null)", R"("rope_parameters": {"rope_theta": 5, "rope_type": "default"})"),
         "rope_theta and rope_parameters.rope_theta contradict each other");
  refuse(with(qwen3_config, R"("rope_scaling": null)",
              R"("rope_scaling": {"type": "yarn", "factor": 2}, "rope_parameters": {"rope_type": "default"})"),
         "rope_scaling and rope_parameters contradict each other");
  refuse(with(qwen3_config, R"("hidden_size": 4096)", R"("hidden_size": "4096")"), R"(hidden_size is "4096"; it must be a whole number)");
  refuse(with(qwen3_config, R"("hidden_size": 4096,)", ""), "hidden_size is missing");
  refuse(with(qwen3_config, R"("head_dim": 128)", R"("head_dim": 100)"), "head_dim is 100; it must be a multiple of 16");
  refuse(with(qwen3_config, R"("num_key_value_heads": 8)", R"("num_key_value_heads": 7)"), "num_key_value_heads is 7");
  refuse(with(qwen3_config, R"("num_attention_heads": 32)", R"("num_attention_heads": 0)"), "num_attention_heads is 0");
  refuse(with(qwen3_config, R"("eos_token_id": 151645)", R"("eos_token_id": "</s>")"), "eos_token_id is \"</s>\"");
  refuse("[]", "not an object");
  refuse("{", "not JSON");
}

void reads_stop_tokens() {
  std::string error;
  const auto tokens = [&](const std::string& text) { return parse_eos_tokens(*parse_json(text, error)); };
  CHECK(tokens(R"({"eos_token_id":[9,3,9]})") == (std::vector<std::int32_t>{3, 9}));
  CHECK(tokens(R"({"eos_token_id":3})") == std::vector<std::int32_t>{3});
  CHECK(tokens(R"({"eos_token_id":null})").empty() && tokens("{}").empty());
  CHECK_THROWS(HfError, tokens(R"({"eos_token_id":[-1]})"), "eos_token_id is [-1]");
}

void reads_what_it_writes() {
  for (const auto& [title, architecture] : tiny_architectures()) {
    for (const auto& eos : std::vector<std::vector<std::int32_t>>{{}, {5}, {5, 6}}) {
      const Json json = hf_config_json(architecture, eos, "float32");
      const HfConfig read = parse_hf_config(write_json(json));
      CHECK(read.architecture == architecture);
      CHECK(read.eos_tokens == eos);
      CHECK(*json.find("dtype")->string() == "float32" && *json.find("torch_dtype")->string() == "float32");
    }
  }
}

}  // namespace

int main() {
  reads_published_models();
  published_models_have_their_numbers_of_parameters();
  reads_the_keys_of_transformers_5();
  reads_yarn();
  refuses_other_models();
  reads_stop_tokens();
  reads_what_it_writes();
  return test::finish();
}
