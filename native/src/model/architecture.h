// The shape of a policy, with the field names of a Hugging Face `config.json`. The same code computes two families:
// Qwen3 (norms on queries and keys) and Qwen2.5 (`qwen2`: biases on queries, keys and values).
#pragma once

#include <optional>
#include <stdexcept>

namespace longhaul {

enum class ModelType { qwen3, qwen2 };

/// "qwen3", "qwen2"
const char* name(ModelType type);

/// YaRN (Peng et al. 2023), static: the same scaling at every length.
struct YarnScaling {
  double factor = 1;
  int original_max_position_embeddings = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  /// Factor of cos and sin; the usual value is 0.1·ln(factor) + 1.
  double attention_factor = 1;

  bool operator==(const YarnScaling&) const = default;
};

struct Architecture {
  ModelType model_type = ModelType::qwen3;
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int num_key_value_heads = 0;
  /// A multiple of 16.
  int head_dim = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 1e6;
  std::optional<YarnScaling> yarn;
  bool tie_word_embeddings = true;
  int max_position_embeddings = 0;

  int query_width() const { return num_attention_heads * head_dim; }
  int key_value_width() const { return num_key_value_heads * head_dim; }
  int qkv_width() const { return query_width() + 2 * key_value_width(); }
  int queries_per_key_value() const { return num_attention_heads / num_key_value_heads; }
  bool has_head_norms() const { return model_type == ModelType::qwen3; }
  bool has_qkv_bias() const { return model_type == ModelType::qwen2; }

  bool operator==(const Architecture&) const = default;
};

/// Throws std::invalid_argument that names the key, its value and what is allowed.
void validate(const Architecture& architecture);

}  // namespace longhaul
