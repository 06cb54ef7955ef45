// LoRA beside frozen weights: the results, and the places and names of the adapters' tensors.
#include "model/adapters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "support/check.h"
#include "support/policies.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int vocab = 71;

std::vector<float> logprobs(const Policy& policy, const std::vector<int32_t>& tokens) {
  ThreadPool pool(1);
  return decode_logprobs(policy, tokens, 1, pool);
}

/// The base's weights with scale · B·A added to each adapted matrix, in double.
std::shared_ptr<Weights> merged(const Policy& policy) {
  auto weights = std::make_shared<Weights>(policy.weights());
  const Adapters& adapters = *policy.adapters();
  std::map<std::string, TensorPlace> places;
  for (const TensorPlace& place : policy.trained_places()) places[place.name] = place;
  for (NamedTensor<float>& tensor : weights->tensors()) {
    if (!tensor.name.ends_with(".weight")) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - 7);
    const auto a = places.find(module + ".lora_A.weight"), b = places.find(module + ".lora_B.weight");
    if (a == places.end()) continue;
    const size_t rank = size_t(a->second.shape[0]), inputs = size_t(a->second.shape[1]), outputs = size_t(b->second.shape[0]);
    check_equal(tensor.values.size(), outputs * inputs, module + ": size");
    const float *from_a = adapters.values().data() + a->second.offset, *from_b = adapters.values().data() + b->second.offset;
    for (size_t i = 0; i < outputs; ++i)
      for (size_t j = 0; j < inputs; ++j) {
        double product = 0;
        for (size_t r = 0; r < rank; ++r) product += double(from_b[i * rank + r]) * double(from_a[r * inputs + j]);
        tensor.values[i * inputs + j] += float(adapters.settings().alpha / adapters.settings().rank * product);
      }
    places.erase(a);
    places.erase(b);
  }
  check(places.empty(), "every adapter belongs to a matrix");
  weights->changed();
  return weights;
}

void untrained_adapters_change_no_bit() {
  const std::vector<int32_t> tokens = random_tokens(50, vocab, 1);
  for (const auto& [name, architecture] : tiny_architectures()) {
    const std::shared_ptr<Weights> base = tiny_weights(3, architecture);
    check_same_bits(logprobs(Policy(base, lora_settings(), 9), tokens), logprobs(Policy::frozen(base), tokens), name);
  }
}

void check_merged(const std::string& name, const Policy& policy) {
  const std::vector<int32_t> tokens = random_tokens(50, vocab, 2);
  const std::vector<float> adapted = logprobs(policy, tokens), base = logprobs(Policy::frozen(policy.shared_weights()), tokens),
                           whole = logprobs(Policy::frozen(merged(policy)), tokens);
  double effect = 0;
  for (size_t i = 0; i < adapted.size(); ++i) {
    check_near(adapted[i], whole[i], 2e-4, name + ", log-prob " + std::to_string(i));
    effect = std::max(effect, std::abs(double(adapted[i]) - base[i]));
  }
  check(effect > 0.01, name + ": the adapters change log-probs by " + std::to_string(effect) + " at most");
}

void adapters_compute_the_same_as_merged_weights() {
  for (const auto& [name, architecture] : tiny_architectures()) check_merged(name, tiny_lora_policy(4, architecture));
}

void any_choice_of_targets_lands_in_its_columns() {
  const std::vector<LoraTarget> all = lora_settings().targets;
  for (const auto& [name, architecture] : {tiny_architectures()[1], tiny_architectures()[3]}) {
    for (const LoraTarget target : all)
      check_merged(name + ", " + longhaul::name(target), tiny_lora_policy(5, architecture, {4, 4, {target}}));
    check_merged(name + ", q and v", tiny_lora_policy(5, architecture, {4, 4, {LoraTarget::q_proj, LoraTarget::v_proj}}));
    check_merged(name + ", k, v and up",
                 tiny_lora_policy(5, architecture, {4, 4, {LoraTarget::k_proj, LoraTarget::v_proj, LoraTarget::up_proj}}));
  }
}

void any_rank_gives_the_same_bits_in_any_batch() {
  const std::vector<int32_t> tokens = random_tokens(40, vocab, 6);
  ThreadPool pool(2);
  for (const int rank : {1, 3, 16, 32, 33}) {
    const Policy policy = tiny_lora_policy(6, tiny_architecture(), lora_settings(rank, 2.0 * rank));
    check_merged("rank " + std::to_string(rank), policy);
    const std::vector<float> alone = decode_logprobs(policy, tokens, 1, pool);
    const float last = decode_logprobs(policy, tokens, 39, pool)[0];
    check_same_bits(&last, &alone[38], 1, "rank " + std::to_string(rank));
  }
}

void tensors_have_pefts_names_and_cover_the_array_once() {
  for (const auto& [name, architecture] : tiny_architectures()) {
    const Policy policy = tiny_lora_policy(2, architecture, lora_settings(6));
    const std::vector<TensorPlace> places = policy.trained_places();
    check_equal(places.size(), size_t(2 * 7 * architecture.num_hidden_layers), name + ": tensors");
    std::vector<char> covered(policy.trained().size(), 0);
    std::map<std::string, std::vector<int64_t>> shapes;
    std::vector<std::string> names;
    for (const TensorPlace& place : places) {
      names.push_back(place.name);
      shapes[place.name] = place.shape;
      check_equal(place.size, size_t(place.shape[0] * place.shape[1]), place.name);
      for (size_t i = 0; i < place.size; ++i) check(!covered.at(place.offset + i)++, place.name + " overlaps another");
    }
    check(std::is_sorted(names.begin(), names.end()), "sorted");
    check(std::find(covered.begin(), covered.end(), 0) == covered.end(), name + ": every value has a name");
    using Shape = std::vector<int64_t>;
    check(shapes.at("model.layers.1.self_attn.k_proj.lora_A.weight") == Shape{6, 48}, "A of k_proj");
    check(shapes.at("model.layers.1.self_attn.k_proj.lora_B.weight") == Shape{architecture.key_value_width(), 6}, "B of k_proj");
    check(shapes.at("model.layers.0.self_attn.o_proj.lora_A.weight") == Shape{6, architecture.query_width()}, "A of o_proj");
    check(shapes.at("model.layers.0.mlp.down_proj.lora_A.weight") == Shape{6, 80}, "A of down_proj");
    check(shapes.at("model.layers.0.mlp.up_proj.lora_B.weight") == Shape{80, 6}, "B of up_proj");
  }
}

void trained_ranges_cover_the_array_in_order() {
  const Policy policy = tiny_lora_policy();
  size_t end = 0;
  for (const TrainedRange& range : policy.trained_ranges()) {
    check_equal(range.offset, end, "offset");
    check(range.decayed, "decayed");
    end += range.size;
  }
  check_equal(end, policy.trained().size(), "end");
  check_equal(policy.moments().size, end, "moments");
}

void initial_values_match_peft() {
  const std::shared_ptr<Weights> base = tiny_weights();
  const LoraSettings settings = lora_settings(16);
  const Policy policy(base, settings, 42), same(base, settings, 42), other(base, settings, 43);
  check_same_bits(policy.trained().data(), same.trained().data(), policy.trained().size(), "same seed");
  check(!std::equal(policy.trained().begin(), policy.trained().end(), other.trained().begin()), "another seed");
  std::set<float> first_values;
  for (const TensorPlace& place : policy.trained_places()) {
    const std::span<const float> values = policy.trained().subspan(place.offset, place.size);
    if (place.name.ends_with(".lora_B.weight")) {
      for (const float value : values) check_equal(value, 0.0f, place.name);
      continue;
    }
    check(first_values.insert(values[0]).second, place.name + " repeats another");
    const double bound = 1 / std::sqrt(double(place.shape[1])), n = double(values.size());
    double sum = 0, square = 0;
    for (const float value : values) {
      check(std::abs(value) <= bound, place.name + ": within the bound");
      sum += value;
      square += double(value) * value;
    }
    check(std::abs(sum / n) < 4 * bound / std::sqrt(3 * n), place.name + ": mean");
    check_near(std::sqrt(square / n) / bound, 1 / std::sqrt(3.0), 0.06, place.name + ": deviation");
  }
}

void bad_settings_are_refused() {
  const auto refused = [](LoraSettings settings, const std::string& part) {
    check_throws<std::invalid_argument>([&] { Adapters adapters(tiny_architecture(), settings); }, part, part);
  };
  refused({0, 8, {LoraTarget::q_proj}}, "lora.rank is 0; it must be between 1 and 48");
  refused({49, 8, {LoraTarget::q_proj}}, "lora.rank is 49; it must be between 1 and 48");
  refused({4, 0, {LoraTarget::q_proj}}, "lora.alpha is 0");
  refused({4, std::nan(""), {LoraTarget::q_proj}}, "lora.alpha is nan");
  refused({4, 8, {}}, "lora.targets is empty");
  refused({4, 8, {LoraTarget::q_proj, LoraTarget::q_proj}}, "lora.targets names q_proj twice");
  refused({4, 8, {LoraTarget::v_proj, LoraTarget::q_proj}}, "lora.targets has q_proj after v_proj");
}

}  // namespace

int main() {
  return run({{"untrained adapters change no bit", untrained_adapters_change_no_bit},
              {"adapters compute the same as merged weights", adapters_compute_the_same_as_merged_weights},
              {"any choice of targets lands in its columns", any_choice_of_targets_lands_in_its_columns},
              {"any rank gives the same bits in any batch", any_rank_gives_the_same_bits_in_any_batch},
              {"tensors have PEFT's names and cover the array once", tensors_have_pefts_names_and_cover_the_array_once},
              {"trained ranges cover the array in order", trained_ranges_cover_the_array_in_order},
              {"initial values match PEFT", initial_values_match_peft},
              {"bad settings are refused", bad_settings_are_refused}});
}
