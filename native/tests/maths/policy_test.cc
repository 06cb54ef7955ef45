#include "model/policy.h"

#include <algorithm>

#include "check.h"
#include "policies.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

void tensors_are_sorted_and_have_hugging_face_names() {
  Architecture untied = tiny_architecture();
  untied.tie_word_embeddings = false;
  untied.num_hidden_layers = 11;
  Policy policy(untied);
  std::vector<std::string> names;
  size_t values = 0;
  for (const NamedTensor<float>& tensor : policy.tensors()) {
    names.push_back(tensor.name);
    int64_t size = 1;
    for (const int64_t n : tensor.shape) size *= n;
    check_equal(size_t(size), tensor.values.size(), tensor.name);
    values += tensor.values.size();
  }
  check(std::is_sorted(names.begin(), names.end()), "sorted");
  check_equal(names.size(), size_t(3 * (11 * 11 + 3)), "number of tensors");
  check_equal(values, 3 * policy.layout().total, "every value once");
  for (const char* name : {"lm_head.weight", "model.embed_tokens.weight", "model.layers.10.self_attn.q_norm.weight",
                           "adam.m.model.layers.0.mlp.down_proj.weight", "adam.v.model.norm.weight"})
    check(std::find(names.begin(), names.end(), name) != names.end(), name);
}

void fused_matrices_are_row_ranges() {
  Policy policy(tiny_architecture());
  std::vector<std::span<float>> parts;
  for (const NamedTensor<float>& tensor : policy.tensors())
    for (const char* part : {"q_proj", "k_proj", "v_proj"})
      if (tensor.name == std::string("model.layers.1.self_attn.") + part + ".weight") parts.push_back(tensor.values);
  check_equal(parts.size(), size_t(3), "projections");  // sorted: k, q, v
  check(parts[1].data() + parts[1].size() == parts[0].data() && parts[0].data() + parts[0].size() == parts[2].data(),
        "q, k and v lie behind one another");
}

void initialization_follows_range_and_seed() {
  Policy policy(tiny_architecture()), same(tiny_architecture()), other(tiny_architecture());
  policy.initialize(0.05, 42);
  same.initialize(0.05, 42);
  other.initialize(0.05, 43);
  check_same_bits(policy.weights().data(), same.weights().data(), policy.weights().size(), "same seed");
  for (const NamedTensor<float>& tensor : policy.tensors()) {
    if (tensor.name.starts_with("adam.")) {
      for (const float value : tensor.values) check_equal(value, 0.0f, tensor.name);
      continue;
    }
    if (tensor.shape.size() == 1) {
      for (const float value : tensor.values) check_equal(value, 1.0f, tensor.name);
      continue;
    }
    double mean = 0, square = 0;
    for (const float value : tensor.values) {
      mean += value;
      square += double(value) * value;
    }
    const double n = double(tensor.values.size());
    const bool residual = tensor.name.find("o_proj") != std::string::npos || tensor.name.find("down_proj") != std::string::npos;
    const double expected = residual ? 0.05 / 2 : 0.05;
    check(std::abs(mean / n) < 4 * expected / std::sqrt(n), tensor.name + ": mean " + std::to_string(mean / n));
    check_near(std::sqrt(square / n) / expected, 1, 0.05, tensor.name + ": deviation");
  }
  check(!std::equal(policy.weights().begin(), policy.weights().end(), other.weights().begin()), "another seed, other weights");
}

void bad_architectures_are_refused() {
  const auto refused = [](const std::function<void(Architecture&)>& spoil, const std::string& part) {
    Architecture architecture = tiny_architecture();
    spoil(architecture);
    check_throws<std::invalid_argument>([&] { Policy policy(architecture); }, part, part);
  };
  refused([](Architecture& a) { a.vocab_size = 0; }, "architecture.vocab_size is 0");
  refused([](Architecture& a) { a.hidden_size = 50; }, "architecture.hidden_size is 50; it must be a multiple of 16");
  refused([](Architecture& a) { a.num_key_value_heads = 3; }, "a divisor of num_attention_heads, 4");
  refused([](Architecture& a) { a.head_dim = 48; }, "a multiple of 32");
  refused([](Architecture& a) { a.rms_norm_eps = 0; }, "rms_norm_eps");
}

void bad_feeds_are_refused() {
  const Policy policy = tiny_policy();
  KvCache cache(policy.architecture(), 2);
  ThreadPool pool(1);
  const std::vector<int32_t> blocks{0, 1}, far{0, 9}, tokens{1, 2, 3}, strange{71};
  const auto refused = [&](const Feed& feed, const std::string& part) {
    check_throws<std::invalid_argument>([&] { extend(policy, cache, {&feed, 1}, nullptr, pool); }, part, part);
  };
  refused({{}, 0, blocks, false}, "has no tokens");
  refused({tokens, -1, blocks, false}, "position -1");
  refused({tokens, 62, blocks, false}, "2 blocks do not cover 65 positions");
  refused({tokens, 31, far, false}, "block 9 does not exist");
  refused({strange, 0, blocks, false}, "token 71 is not in the vocabulary");
  refused({tokens, 255, blocks, false}, "max_position_embeddings");
}

}  // namespace

int main() {
  return run({{"tensors are sorted and have Hugging Face names", tensors_are_sorted_and_have_hugging_face_names},
              {"fused matrices are row ranges", fused_matrices_are_row_ranges},
              {"initialization follows range and seed", initialization_follows_range_and_seed},
              {"bad architectures are refused", bad_architectures_are_refused},
              {"bad feeds are refused", bad_feeds_are_refused}});
}
