// Numerics in bf16 (docs/engine.md, "bf16"): a linear layer, what passes compute with, and the order in which gradients are added up. The bits
// of products and attention are checked in tests/cpu; that they do not depend on batch, cut or threads, by the tests of bf16/ in CMakeLists.txt.
#include <algorithm>

#include "base/split_master.h"
#include "base/tensor_core.h"
#include "support/batches.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int whole = 1 << 30;

float high(float weight) { return bf16_weight(split_weight(weight).high); }

/// Nearest bf16 number, ties to even, of a finite value.
float nearest(float value) {
  const float down = bf16_weight(uint16_t(std::bit_cast<uint32_t>(value) >> 16));
  const float up = bf16_weight(uint16_t((std::bit_cast<uint32_t>(value) >> 16) + 1));
  const double below = std::abs(double(value) - double(down)), above = std::abs(double(up) - double(value));
  if (below != above) return below < above ? down : up;
  return (std::bit_cast<uint32_t>(down) >> 16) % 2 == 0 ? down : up;
}

/// Σ a[k]·b(k) in sixteens, from +0.
float chain(int depth, auto&& a, auto&& b) {
  float sum = 0;
  for (int first = 0; first < depth; first += products_at_once) {
    const int count = std::min(products_at_once, depth - first);
    float left[products_at_once], right[products_at_once];
    for (int k = 0; k < count; ++k) left[k] = a(first + k), right[k] = b(first + k);
    sum = tensor_core_sum(sum, left, 1, right, 1, count);
  }
  return sum;
}

std::vector<float> bf16_values(size_t n, uint32_t stream) {
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i) values.push_back(nearest(uniform_at(uint32_t(i), stream) - 0.5f));
  return values;
}

Gradient gradient_in(ops::Arithmetic arithmetic, const Objective& objective, const Policy& policy, ThreadPool& pool,
                     ForestPassSettings settings = {}) {
  CpuTraining pass(CpuDevice(pool, arithmetic), settings);
  return gradient_with(pass, objective, policy);
}

void a_linear_layer_adds_its_chains_in_fp32_and_rounds_once() {
  constexpr int rows = 5;
  for (const bool lora : {false, true}) {
    const Architecture architecture = tiny_architectures()[4].second;  // qwen2, with biases
    const Policy policy = lora ? tiny_lora_policy(3, architecture) : tiny_policy(3, architecture);
    ThreadPool pool(1);
    CpuDevice device(pool, ops::Arithmetic::bf16);
    device.hold(policy);
    device.start();
    device.pack_backward();
    const CpuLinear &forward = device.linears(1).qkv, &backward = device.backward_linears(1).qkv;
    const int inputs = forward.inputs(), outputs = forward.outputs(), down_width = forward.adapter_width();
    const std::vector<float> x = bf16_values(size_t(rows) * size_t(inputs), 1), before = bf16_values(size_t(rows) * size_t(outputs), 2);
    const ParameterRange bias = policy.layout().layers[1].qkv_bias;
    const auto weight = [&](int output, int input) {
      return high(policy.weights().at(forward.range)[size_t(output) * size_t(inputs) + size_t(input)]);
    };
    const auto adapter = [&](const ParameterRange& range, int row, int column) {
      return high(policy.adapters()->values()[range.offset + size_t(row) * size_t(range.columns) + size_t(column)]);
    };
    const float scale = forward.adapter_scale;

    std::vector<float> down(size_t(rows) * size_t(down_width)), expected_down(down.size()), y = before, expected;
    device.linear(forward, {x.data(), size_t(inputs)}, {y.data(), size_t(outputs)}, rows, true, down.data());
    for (int i = 0; i < rows; ++i) {
      const float* row = x.data() + i * inputs;
      for (int j = 0; j < down_width; ++j)
        expected_down[size_t(i * down_width + j)] =
            nearest(scale * chain(inputs, [&](int k) { return row[k]; }, [&](int k) { return adapter(forward.adapter->a, j, k); }));
      for (int o = 0; o < outputs; ++o) {
        float sum = chain(inputs, [&](int k) { return row[k]; }, [&](int k) { return weight(o, k); });
        sum += high(policy.weights().at(bias)[o]);
        if (lora)
          for (size_t p = 0; p < forward.adapter->parts.size(); ++p) {
            const AdapterPart& part = forward.adapter->parts[p];
            if (o < part.first_output || o >= part.first_output + part.b.rows) continue;
            const float* own = expected_down.data() + i * down_width + int(p) * part.b.columns;
            sum += chain(part.b.columns, [&](int k) { return own[k]; }, [&](int k) { return adapter(part.b, o - part.first_output, k); });
          }
        expected.push_back(nearest(before[size_t(i * outputs + o)] + sum));
      }
    }
    const std::string name = lora ? "LoRA" : "all weights";
    check_same_bits(down, expected_down, name + ": x·Aᵀ");
    check_same_bits(y, expected, name + ": the layer's output");

    std::vector<float> dx(size_t(rows) * size_t(inputs)), d_down(down.size()), expected_d_down(down.size()), expected_dx;
    device.linear_backward(backward, {before.data(), size_t(outputs)}, dx.data(), rows, d_down.data());
    for (int i = 0; i < rows; ++i) {
      const float* dy = before.data() + i * outputs;
      for (int j = 0; j < down_width; ++j) {
        const size_t p = size_t(j) / size_t(forward.adapter->parts[0].b.columns);
        const AdapterPart& part = forward.adapter->parts[p];
        const int column = j - int(p) * part.b.columns;
        const float sum = chain(part.b.rows, [&](int k) { return dy[part.first_output + k]; }, [&](int k) { return adapter(part.b, k, column); });
        expected_d_down[size_t(i * down_width + j)] = nearest(scale * sum);
      }
      for (int k = 0; k < inputs; ++k) {
        float sum = chain(outputs, [&](int o) { return dy[o]; }, [&](int o) { return weight(o, k); });
        if (lora)
          sum += chain(down_width, [&](int j) { return expected_d_down[size_t(i * down_width + j)]; }, [&](int j) { return adapter(forward.adapter->a, j, k); });
        expected_dx.push_back(nearest(sum));
      }
    }
    check_same_bits(d_down, expected_d_down, name + ": the gradient of x·Aᵀ");
    check_same_bits(dx, expected_dx, name + ": the gradient of the input");
  }
}

void weights_compute_as_their_upper_halves() {
  ThreadPool pool(2);
  for (const auto& [name, policy] : tiny_policies()) {
    const Objective objective = shared_objective(policy.architecture().vocab_size, 9, 5, 12);
    Policy rounded = policy;
    if (!policy.adapters())
      for (float& value : rounded.trained()) value = high(value);
    rounded.changed();
    const Gradient expected = gradient_in(ops::Arithmetic::bf16, objective, rounded, pool);
    const Gradient actual = gradient_in(ops::Arithmetic::bf16, objective, policy, pool);
    check_same_bits(actual.logprobs, expected.logprobs, name + ": log-probs");
    check_same_bits(actual.values, expected.values, name + ": gradient");
    check(actual.logprobs != gradient_in(ops::Arithmetic::fp32, objective, policy, pool).logprobs, name + ": fp32 differs");
  }
}

/// With weights so small that rounding does not grow from layer to layer.
std::vector<std::pair<std::string, Policy>> gentle_policies() {
  std::vector<std::pair<std::string, Policy>> policies;
  for (const auto& [name, architecture] : tiny_architectures()) {
    auto weights = std::make_shared<Weights>(architecture);
    weights->initialize(0.1, 7);
    vary_vectors(*weights);
    Policy lora(std::shared_ptr<const Weights>(weights), lora_settings(), 8);
    for (size_t i = 0; i < lora.trained().size(); ++i) lora.trained()[i] = 0.2f * uniform_at(uint32_t(i), 77) - 0.1f;
    policies.emplace_back(name, Policy(std::make_shared<Weights>(*weights)));
    policies.emplace_back(name + ", LoRA", lora);
  }
  for (auto& [name, policy] : policies) policy.changed();
  return policies;
}

void gradients_are_those_of_fp32_but_for_rounding() {
  ThreadPool pool(2);
  double greatest = 0;
  for (const auto& [name, policy] : gentle_policies()) {
    const Objective objective = shared_objective(policy.architecture().vocab_size, 40, 9, 30).with_entropy();
    const Gradient exact = gradient_in(ops::Arithmetic::fp32, objective, policy, pool), bf16 = gradient_in(ops::Arithmetic::bf16, objective, policy, pool);
    for (const TensorPlace& place : policy.trained_places()) {
      const auto part = [&](const std::vector<float>& all) {
        return std::vector<float>(all.begin() + std::ptrdiff_t(place.offset), all.begin() + std::ptrdiff_t(place.offset + place.size));
      };
      const double difference = relative_difference(part(bf16.values), part(exact.values));
      greatest = std::max(greatest, difference);
      check(difference < 0.05, name + ": the gradient of " + place.name + " is " + std::to_string(difference) + " apart");
    }
    const double all = relative_difference(bf16.values, exact.values);
    check(all < 0.02, name + ": gradients are " + std::to_string(all) + " apart");
  }
  std::printf("greatest relative difference of a tensor's gradient: %.4f\n", greatest);
}

/// Long enough for three sums of 4,096 rows.
void gradients_of_several_sums_do_not_depend_on_passes() {
  Architecture architecture = tiny_architecture();
  architecture.num_hidden_layers = 1;
  architecture.max_position_embeddings = 4096;
  Objective objective;
  for (uint32_t tree = 0; tree < 40; ++tree) {
    const int first = objective.forest.rows();
    objective.forest.add(-1, random_tokens(229, 71, tree));
    for (int i = 0; i < 229; i += 3) objective.add_target(first + i, (i * 7) % 71, i % 2 ? 0.3 : -0.25);
  }
  for (const bool lora : {false, true}) {
    const Policy policy = lora ? tiny_lora_policy(5, architecture) : tiny_policy(5, architecture);
    ThreadPool alone(1), pool(2);
    const Gradient expected = gradient_in(ops::Arithmetic::bf16, objective, policy, alone);
    for (const int pass_rows : {1536, 4608}) {
      const Gradient actual = gradient_in(ops::Arithmetic::bf16, objective, policy, pool, {pass_rows, true});
      check_same_bits(actual.values, expected.values, "passes of " + std::to_string(pass_rows));
    }
  }
}

void pieces_of_4096_rows_are_a_sum_and_sums_make_8_shards() {
  Forest forest;
  forest.add(-1, random_tokens(9 * 4096 + 100, 71, 1));
  const std::vector<int32_t> targets{0, 9 * 4096};
  const PassPlan plan(forest, targets, whole);
  std::vector<int> shards(10, -1);
  for (const PieceRange& piece : plan.pieces(plan.passes[0], false)) {
    check_equal(piece.sum, piece.first / 4096, "sum of the piece at row " + std::to_string(piece.first));
    shards[size_t(piece.sum)] = piece.shard;
  }
  check(shards == std::vector<int>{0, 0, 1, 2, 3, 4, 4, 5, 6, 7}, "shards");
  const std::vector<PieceRange> last = plan.pieces(plan.passes[0], true);
  check_equal(last.size(), size_t(2), "pieces with outputs");
  check(last[0].sum == 9 && last[0].shard == 7 && last[1].sum == 0 && last[1].shard == 0, "sums of outputs");
}

void sums_are_added_to_their_shard_and_shards_to_the_gradient() {
  ThreadPool pool(2);
  const ParameterRange range{5, 2, 3, true};
  std::vector<float> gradients(11, 0.0f), expected(6, 0.0f);
  ShardedSums sums(pool);
  sums.begin();
  // Values of very different size, so that another order of sums has other bits.
  const auto value = [](int sum, int i) { return std::ldexp(uniform_at(uint32_t(sum * 6 + i), 4) - 0.5f, (sum * 11) % 23); };
  for (int sum = 19; sum >= 0; --sum)
    for (int half = 0; half < 2; ++half) {
      float* to = sums.at(range, {{0, 0}, sum, sum * 8 / 20}, gradients.data(), gradients.size());
      for (int i = 0; i < 6; ++i) to[i] += value(sum, i) * 0.5f;
    }
  sums.finish(gradients.data());
  for (int i = 0; i < 6; ++i)
    for (int shard = 7; shard >= 0; --shard) {
      float total = 0;
      for (int sum = 19; sum >= 0; --sum)
        if (sum * 8 / 20 == shard) total += value(sum, i);
      expected[size_t(i)] += total;
    }
  check_same_bits(std::vector<float>(gradients.begin() + 5, gradients.end()), expected, "gradient");
  check(std::all_of(gradients.begin(), gradients.begin() + 5, [](float x) { return x == 0; }), "other gradients are untouched");
}

}  // namespace

int main() {
  return run({{"a linear layer adds its chains in fp32 and rounds once", a_linear_layer_adds_its_chains_in_fp32_and_rounds_once},
              {"weights compute as their upper halves", weights_compute_as_their_upper_halves},
              {"gradients are those of fp32 but for rounding", gradients_are_those_of_fp32_but_for_rounding},
              {"gradients of several sums do not depend on passes", gradients_of_several_sums_do_not_depend_on_passes},
              {"pieces of 4096 rows are a sum, and sums make 8 shards", pieces_of_4096_rows_are_a_sum_and_sums_make_8_shards},
              {"sums are added to their shard, and shards to the gradient", sums_are_added_to_their_shard_and_shards_to_the_gradient}});
}
