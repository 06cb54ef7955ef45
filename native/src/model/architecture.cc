#include "model/architecture.h"

#include <cmath>
#include <cstdio>
#include <string>

namespace longhaul {

namespace {

[[noreturn]] void refuse(const std::string& key, double value, const std::string& allowed) {
  char shown[32];
  std::snprintf(shown, sizeof shown, "%.12g", value);
  throw std::invalid_argument("architecture." + key + " is " + shown + "; it must be " + allowed);
}

void check_range(const char* key, int value, int most) {
  if (value < 1 || value > most) refuse(key, value, "between 1 and " + std::to_string(most));
}

void check_multiple(const char* key, int value, int unit) {
  if (value % unit != 0) refuse(key, value, "a multiple of " + std::to_string(unit));
}

void check_yarn(const YarnScaling& yarn) {
  // (The comparisons are written so that NaN fails them.)
  if (!(yarn.factor >= 1 && yarn.factor <= 1024)) refuse("yarn.factor", yarn.factor, "between 1 and 1024");
  check_range("yarn.original_max_position_embeddings", yarn.original_max_position_embeddings, 1 << 20);
  if (!(yarn.beta_slow > 0 && yarn.beta_slow < 1e6)) refuse("yarn.beta_slow", yarn.beta_slow, "above 0 and below 1e6");
  if (!(yarn.beta_fast > yarn.beta_slow && yarn.beta_fast < 1e6))
    refuse("yarn.beta_fast", yarn.beta_fast, "above yarn.beta_slow and below 1e6");
  if (!(yarn.attention_factor > 0 && yarn.attention_factor <= 100))
    refuse("yarn.attention_factor", yarn.attention_factor, "above 0 and at most 100");
}

}  // namespace

const char* name(ModelType type) {
  switch (type) {
    case ModelType::qwen2:
      return "qwen2";
    case ModelType::qwen3:
      break;
  }
  return "qwen3";
}

void validate(const Architecture& architecture) {
  check_range("vocab_size", architecture.vocab_size, 1 << 20);
  check_range("hidden_size", architecture.hidden_size, 1 << 16);
  check_multiple("hidden_size", architecture.hidden_size, 16);
  check_range("intermediate_size", architecture.intermediate_size, 1 << 18);
  check_multiple("intermediate_size", architecture.intermediate_size, 16);
  check_range("num_hidden_layers", architecture.num_hidden_layers, 1024);
  check_range("num_attention_heads", architecture.num_attention_heads, 1024);
  check_range("num_key_value_heads", architecture.num_key_value_heads, architecture.num_attention_heads);
  if (architecture.num_attention_heads % architecture.num_key_value_heads != 0)
    refuse("num_key_value_heads", architecture.num_key_value_heads,
           "a divisor of num_attention_heads, " + std::to_string(architecture.num_attention_heads));
  check_range("head_dim", architecture.head_dim, 1024);
  check_multiple("head_dim", architecture.head_dim, 16);
  check_range("max_position_embeddings", architecture.max_position_embeddings, 1 << 20);
  if (!(architecture.rms_norm_eps > 0 && architecture.rms_norm_eps < 1))
    refuse("rms_norm_eps", architecture.rms_norm_eps, "between 0 and 1");
  if (!(architecture.rope_theta > 1 && architecture.rope_theta < 1e12))
    refuse("rope_theta", architecture.rope_theta, "between 1 and 1e12");
  if (architecture.yarn) check_yarn(*architecture.yarn);
}

}  // namespace longhaul
