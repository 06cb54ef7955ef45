// The parts of a policy: names and places of tensors, initial values, copies, and the shapes and calls that are refused.
#include "model/policy.h"

#include <algorithm>
#include <set>

#include "support/check.h"
#include "support/policies.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

std::vector<std::string> names_of(const std::vector<TensorPlace>& places) {
  std::vector<std::string> names;
  for (const TensorPlace& place : places) names.push_back(place.name);
  return names;
}

void tensors_are_sorted_and_cover_every_value_once() {
  for (auto& [name, architecture] : tiny_architectures()) {
    Architecture deep = architecture;
    deep.num_hidden_layers = 11;
    const ParameterLayout layout(deep);
    const std::vector<TensorPlace> places = tensor_places(deep, layout);
    const std::vector<std::string> names = names_of(places);
    check(std::is_sorted(names.begin(), names.end()), name + ": sorted");
    const size_t in_layer = deep.model_type == ModelType::qwen3 ? 11 : 12;
    check_equal(names.size(), 11 * in_layer + (deep.tie_word_embeddings ? 2 : 3), name + ": number of tensors");
    std::vector<char> covered(layout.total, 0);
    for (const TensorPlace& place : places) {
      int64_t size = 1;
      for (const int64_t n : place.shape) size *= n;
      check_equal(size_t(size), place.size, place.name);
      for (size_t i = 0; i < place.size; ++i) check(!covered.at(place.offset + i)++, place.name + " overlaps another");
    }
    check(std::find(covered.begin(), covered.end(), 0) == covered.end(), name + ": every value has a name");
    size_t end = 0;
    for (const ParameterRange& range : layout.ranges()) {
      check(!range.empty(), name + ": no range is empty");
      check_equal(range.offset, end, name + ": ranges follow one another");
      end += range.size();
    }
    check_equal(end, layout.total, name + ": total");
  }
}

void names_are_hugging_faces() {
  const auto has = [](const Architecture& architecture, const std::string& name) {
    const std::vector<std::string> names = names_of(tensor_places(architecture, ParameterLayout(architecture)));
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  Architecture qwen3 = tiny_architecture(), qwen2 = tiny_architecture();
  qwen2.model_type = ModelType::qwen2;
  qwen2.tie_word_embeddings = false;
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "model.layers.1.mlp.down_proj.weight",
                           "model.layers.0.post_attention_layernorm.weight", "model.layers.0.self_attn.o_proj.weight"}) {
    check(has(qwen3, name), name);
    check(has(qwen2, name), name);
  }
  for (const char* name : {"model.layers.1.self_attn.q_norm.weight", "model.layers.1.self_attn.k_norm.weight"}) {
    check(has(qwen3, name), name);
    check(!has(qwen2, name), std::string(name) + " in qwen2");
  }
  for (const char* name : {"model.layers.1.self_attn.q_proj.bias", "model.layers.1.self_attn.k_proj.bias",
                           "model.layers.1.self_attn.v_proj.bias", "lm_head.weight"}) {
    check(has(qwen2, name), name);
    check(!has(qwen3, name), std::string(name) + " in tied qwen3");
  }
}

void fused_matrices_and_biases_are_row_ranges() {
  Architecture architecture = tiny_architecture();
  architecture.model_type = ModelType::qwen2;
  Weights weights(architecture);
  const LayerParameters& layer = weights.layout().layers[1];
  const std::string prefix = "model.layers.1.self_attn.";
  for (const auto& [kind, range] : {std::pair{".weight", layer.qkv}, std::pair{".bias", layer.qkv_bias}}) {
    const float* end = weights.at(range);
    for (const char* part : {"q_proj", "k_proj", "v_proj"})
      for (const NamedTensor<float>& tensor : weights.tensors())
        if (tensor.name == prefix + part + kind) {
          check(tensor.values.data() == end, tensor.name + " does not follow the tensor before it");
          end += tensor.values.size();
        }
    check(end == weights.at(range) + range.size(), std::string("q, k and v fill the range of") + kind);
  }
}

void norms_biases_and_embeddings_do_not_decay() {
  for (const auto& [name, architecture] : tiny_architectures()) {
    const ParameterLayout layout(architecture);
    for (const ParameterRange& range : layout.ranges())
      check_equal(range.decayed, range.rows > 1 && range.offset != layout.embedding.offset, name + ": decayed");
  }
}

void initialization_follows_range_and_seed() {
  for (const auto& [name, architecture] : tiny_architectures()) {
    Weights weights(architecture), same(architecture), other(architecture);
    ThreadPool pool(3);
    weights.initialize(0.05, 42);
    same.initialize(0.05, 42, &pool);
    other.initialize(0.05, 43);
    check_same_bits(same.values().data(), weights.values().data(), weights.values().size(), name + ": same seed");
    check(!std::equal(weights.values().begin(), weights.values().end(), other.values().begin()), "another seed, other weights");
    for (const NamedTensor<float>& tensor : weights.tensors()) {
      if (tensor.shape.size() == 1) {
        for (const float value : tensor.values) check_equal(value, tensor.name.ends_with(".bias") ? 0.0f : 1.0f, tensor.name);
        continue;
      }
      double mean = 0, square = 0;
      for (const float value : tensor.values) {
        mean += value;
        square += double(value) * value;
      }
      const double n = double(tensor.values.size());
      const bool residual =
          tensor.name.find("o_proj") != std::string::npos || tensor.name.find("down_proj") != std::string::npos;
      const double expected = residual ? 0.05 / 2 : 0.05;
      check(std::abs(mean / n) < 4 * expected / std::sqrt(n), tensor.name + ": mean " + std::to_string(mean / n));
      check_near(std::sqrt(square / n) / expected, 1, 4 / std::sqrt(2 * n), tensor.name + ": deviation");
    }
  }
}

void packing_does_not_depend_on_threads() {
  ThreadPool pool(3);
  Architecture wide = tiny_architecture();
  wide.vocab_size = 9001;  // more panels than one task packs
  wide.tie_word_embeddings = false;
  Weights alone(wide), shared(wide);
  alone.initialize(0.1, 1);
  shared.initialize(0.1, 1, &pool);
  alone.pack_forward(nullptr);
  shared.pack_forward(&pool);
  WeightPanels backward_alone, backward_shared;
  alone.pack_backward(backward_alone);
  shared.pack_backward(backward_shared, &pool);
  const auto same = [](const ops::Panels& a, const ops::Panels& b, int depth, int columns, const std::string& what) {
    check_equal(a.depth, depth, what + ": depth");
    check_equal(a.columns, columns, what + ": columns");
    check_equal(b.depth, depth, what + ": depth, shared");
    check_equal(b.columns, columns, what + ": columns, shared");
    check_same_bits(b.values.data(), a.values.data(), size_t(ops::panel_count(columns)) * depth * ops::panel_columns, what);
  };
  same(alone.forward_panels().head, shared.forward_panels().head, 48, 9001, "head");
  same(backward_alone.head, backward_shared.head, 9001, 48, "head, backward");
  same(alone.forward_panels().layers[1].gate_up, shared.forward_panels().layers[1].gate_up, 48, 160, "gate_up");
  same(backward_alone.layers[0].down, backward_shared.layers[0].down, 48, 80, "down, backward");
  // Column 9000 of the head is column 8 of its last panel; the columns after it are zero.
  const float* last = alone.forward_panels().head.panel(281);
  for (int k = 0; k < 48; ++k)
    for (int j = 0; j < 32; ++j)
      check_equal(last[k * 32 + j], j <= 8 ? alone.at(alone.layout().head)[size_t(8992 + j) * 48 + k] : 0.0f, "last panel");
}

void moments_have_the_size_of_what_is_trained() {
  const Policy full = tiny_policy(1, tiny_architecture(), MomentFormat::int8);
  check_equal(full.moments().size, full.layout().total, "full");
  check_equal(full.moments().first_codes.size(), full.layout().total, "codes");
  check_equal(full.moments().first_scales.size(), (full.layout().total + 255) / 256, "scales");
  check_equal(full.moments().first.size(), size_t(0), "fp32");
  const Policy lora = tiny_lora_policy();
  check_equal(lora.moments().size, lora.adapters()->layout().total, "adapters");
  check_equal(lora.moments().first.size(), lora.trained().size(), "fp32 of adapters");
}

void copies_share_what_is_frozen_and_copy_what_is_trained() {
  Policy full = tiny_policy(), lora = tiny_lora_policy();
  Policy full_copy = full, lora_copy = lora;
  check(&full_copy.weights() != &full.weights(), "full: own weights");
  check(&lora_copy.weights() == &lora.weights(), "LoRA: the same weights");
  check(&full_copy.weights().rope() == &full.weights().rope(), "one rotary table");
  for (Policy* policy : {&full, &lora}) {
    const Policy& copy = policy == &full ? full_copy : lora_copy;
    check_same_bits(copy.trained().data(), policy->trained().data(), copy.trained().size(), "trained");
    const float before = copy.trained()[5];
    policy->trained()[5] += 1;
    check_equal(copy.trained()[5], before, "a copy keeps its values");
  }
}

void assignment_keeps_the_memory() {
  const Policy full = tiny_policy(1), lora = tiny_lora_policy(2);
  for (const Policy* from : {&full, &lora}) {
    from->pack_forward(nullptr);
    Policy to = *from;
    to.optimizer_steps = 3;
    to.trained()[7] = 99;
    to.moments().first.data()[1] = 5;
    const float *trained = to.trained().data(), *moments = to.moments().second.data();
    const float* panels = to.adapters() ? to.adapters()->forward_panels()[0].down.a.values.data()
                                        : to.weights().forward_panels().layers[0].down.values.data();
    to = *from;
    check(to.trained().data() == trained && to.moments().second.data() == moments, "trained values and moments stay in place");
    check(panels == (to.adapters() ? to.adapters()->forward_panels()[0].down.a.values.data()
                                   : to.weights().forward_panels().layers[0].down.values.data()),
          "panels stay in place");
    check_equal(to.optimizer_steps, int64_t(0), "steps");
    check_equal(to.moments().first.data()[1], 0.0f, "moments");
    check_same_bits(to.trained().data(), from->trained().data(), to.trained().size(), "values");
  }
  // Assignment from one kind of policy to another.
  Policy changing = full;
  changing = lora;
  check(&changing.weights() == &lora.weights() && changing.adapters(), "full to LoRA");
  changing = full;
  check(&changing.weights() != &full.weights() && !changing.adapters(), "LoRA to full");
  check_same_bits(changing.trained().data(), full.trained().data(), full.trained().size(), "LoRA to full");
}

void weights_that_others_hold_are_never_written() {
  Policy policy = tiny_policy(3);
  const std::shared_ptr<const Weights> reference = policy.shared_weights();
  const std::vector<float> before(reference->values().begin(), reference->values().end());
  policy.trained()[0] += 1;
  policy.changed();
  check(&policy.weights() != reference.get(), "the policy has a copy");
  check_same_bits(reference->values().data(), before.data(), before.size(), "reference after writing");
  Policy spare = tiny_policy(4);
  const std::shared_ptr<const Weights> other = spare.shared_weights();
  const float value = other->values()[0];
  spare = policy;
  check_equal(other->values()[0], value, "reference after assignment");
  // Weights that nobody else holds become the policy's own; other weights are copied.
  std::shared_ptr<Weights> own = tiny_weights();
  const Weights* place = own.get();
  check(&Policy(own).weights() != place, "copied");
  check(&Policy(std::move(own)).weights() == place, "taken over");
}

void frozen_weights_cannot_be_trained() {
  const std::shared_ptr<Weights> weights = tiny_weights();
  Policy frozen = Policy::frozen(weights), lora(weights, lora_settings(), 1);
  const Policy copy = frozen;
  check(&frozen.weights() == weights.get() && &copy.weights() == weights.get() && &lora.weights() == weights.get(), "shared");
  check(frozen.trained().empty() && frozen.trained_ranges().empty() && frozen.trained_places().empty(), "nothing is trained");
  check_equal(frozen.moments().size, size_t(0), "moments");
  check_throws<std::logic_error>([&] { frozen.own_weights(); }, "frozen", "own_weights of a frozen policy");
  check_throws<std::logic_error>([&] { lora.own_weights(); }, "frozen", "own_weights beside adapters");
  check_throws<std::invalid_argument>([&] { Policy::frozen(nullptr); }, "no weights", "no weights");
}

void bad_architectures_are_refused() {
  const auto refused = [](const std::function<void(Architecture&)>& spoil, const std::string& part) {
    Architecture architecture = tiny_architecture();
    spoil(architecture);
    check_throws<std::invalid_argument>([&] { Weights weights(architecture); }, part, part);
  };
  refused([](Architecture& a) { a.vocab_size = 0; }, "architecture.vocab_size is 0");
  refused([](Architecture& a) { a.hidden_size = 50; }, "architecture.hidden_size is 50; it must be a multiple of 16");
  refused([](Architecture& a) { a.num_key_value_heads = 3; }, "a divisor of num_attention_heads, 4");
  refused([](Architecture& a) { a.head_dim = 40; }, "architecture.head_dim is 40; it must be a multiple of 16");
  refused([](Architecture& a) { a.rms_norm_eps = 0; }, "rms_norm_eps");
  refused([](Architecture& a) { a.rope_theta = HUGE_VAL; }, "rope_theta is inf");
  check_throws<std::invalid_argument>([] { Weights(tiny_architecture()).initialize(0, 1); }, "initializer_range", "range");
}

void cache_blocks_hold_keys_then_values_in_panels() {
  Architecture architecture = tiny_architecture();
  architecture.head_dim = 48;
  KvCache cache(architecture, 3);
  const size_t head = 48 * 32 + 2 * 32 * 32;
  check_equal(cache.head_stride(), head, "head stride");
  check_equal(cache.block_stride(), 2 * 2 * head, "block stride");
  check_equal(KvCache::block_bytes(architecture), cache.block_stride() * sizeof(float), "bytes");
  check(cache.keys(1, 1, 1) == cache.keys(0, 0, 0) + cache.block_stride() + 3 * head, "block, layer, head");
  cache.keys(1, 1, 1)[9] = 2;
  const size_t last_value = head - 1;  // values follow keys
  cache.keys(1, 0, 1)[last_value] = 3;
  cache.copy_block(1, 2);
  check_equal(cache.keys(2, 1, 1)[9], 2.0f, "key");
  check_equal(cache.keys(2, 0, 1)[last_value], 3.0f, "value");
  check_throws<std::invalid_argument>([&] { KvCache none(architecture, 0); }, "block_capacity is 0", "no blocks");
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
  return run({{"tensors are sorted and cover every value once", tensors_are_sorted_and_cover_every_value_once},
              {"names are Hugging Face's", names_are_hugging_faces},
              {"fused matrices and biases are row ranges", fused_matrices_and_biases_are_row_ranges},
              {"norms, biases and embeddings do not decay", norms_biases_and_embeddings_do_not_decay},
              {"initialization follows range and seed", initialization_follows_range_and_seed},
              {"packing does not depend on threads", packing_does_not_depend_on_threads},
              {"moments have the size of what is trained", moments_have_the_size_of_what_is_trained},
              {"copies share what is frozen and copy what is trained", copies_share_what_is_frozen_and_copy_what_is_trained},
              {"assignment keeps the memory", assignment_keeps_the_memory},
              {"weights that others hold are never written", weights_that_others_hold_are_never_written},
              {"frozen weights cannot be trained", frozen_weights_cannot_be_trained},
              {"bad architectures are refused", bad_architectures_are_refused},
              {"cache blocks hold keys, then values in panels", cache_blocks_hold_keys_then_values_in_panels},
              {"bad feeds are refused", bad_feeds_are_refused}});
}
