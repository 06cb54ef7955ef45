// The measured models, with random weights. Each has a counterpart in bench/engine/peers/peer.py.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "model/policy.h"

namespace longhaul::bench {

struct Size {
  const char* name;
  int layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
};

inline constexpr Size sizes[] = {{"0.85M", 4, 128, 384, 4, 2, 32, 512},
                                 {"6M", 6, 256, 1024, 8, 4, 32, 1024},
                                 {"60M", 8, 768, 2240, 12, 4, 64, 8192},
                                 {"0.6B", 28, 1024, 3072, 16, 8, 128, 151'936}};  // the shape of Qwen3-0.6B

inline Architecture architecture_of(const std::string& name) {
  for (const Size& size : sizes) {
    if (name != size.name) continue;
    Architecture architecture;
    architecture.num_hidden_layers = size.layers;
    architecture.hidden_size = size.hidden;
    architecture.intermediate_size = size.intermediate;
    architecture.num_attention_heads = size.heads;
    architecture.num_key_value_heads = size.kv_heads;
    architecture.head_dim = size.head_dim;
    architecture.vocab_size = size.vocab;
    architecture.max_position_embeddings = 2048;
    return architecture;
  }
  throw std::invalid_argument("--size is \"" + name + "\"; it must be 0.85M, 6M, 60M or 0.6B");
}

inline Policy policy_of(const Architecture& architecture, ThreadPool& pool, MomentFormat moments = MomentFormat::fp32) {
  auto weights = std::make_shared<Weights>(architecture, &pool);
  weights->initialize(0.02, 1, &pool);
  return Policy(std::move(weights), moments);
}

inline std::vector<int32_t> random_tokens(int count, int vocab, uint32_t stream) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(int32_t(philox4x32_10({uint32_t(i), stream, 0, 0}, {1, 1})[0] % uint32_t(vocab)));
  return tokens;
}

}  // namespace longhaul::bench
