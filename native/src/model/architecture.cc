#include "model/architecture.h"

#include <cmath>
#include <string>

namespace longhaul {

namespace {

[[noreturn]] void refuse(const std::string& key, double value, const std::string& allowed) {
  std::string shown = value == std::floor(value) ? std::to_string(int64_t(value)) : std::to_string(value);
  throw std::invalid_argument("architecture." + key + " is " + shown + "; it must be " + allowed);
}

void check_range(const char* key, int value, int most) {
  if (value < 1 || value > most) refuse(key, value, "between 1 and " + std::to_string(most));
}

void check_multiple(const char* key, int value, int unit) {
  if (value % unit != 0) refuse(key, value, "a multiple of " + std::to_string(unit));
}

}  // namespace

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
  check_multiple("head_dim", architecture.head_dim, 32);
  check_range("max_position_embeddings", architecture.max_position_embeddings, 1 << 20);
  if (!(architecture.rms_norm_eps > 0 && architecture.rms_norm_eps < 1))
    refuse("rms_norm_eps", architecture.rms_norm_eps, "between 0 and 1");
  if (!(architecture.rope_theta > 1 && architecture.rope_theta < 1e12))
    refuse("rope_theta", architecture.rope_theta, "between 1 and 1e12");
}

}  // namespace longhaul
