// The shape of a Qwen3 policy, in the keys of its Hugging Face `config.json`.
#pragma once

#include <stdexcept>

namespace longhaul {

struct Architecture {
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int num_key_value_heads = 0;
  int head_dim = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 1e6;
  bool tie_word_embeddings = true;
  int max_position_embeddings = 0;

  int query_width() const { return num_attention_heads * head_dim; }
  int key_value_width() const { return num_key_value_heads * head_dim; }
  int qkv_width() const { return query_width() + 2 * key_value_width(); }
  int queries_per_key_value() const { return num_attention_heads / num_key_value_heads; }

  bool operator==(const Architecture&) const = default;
};

/// Throws std::invalid_argument that names the key, its value and what is allowed.
void validate(const Architecture& architecture);

}  // namespace longhaul
