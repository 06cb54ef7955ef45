// Compares with PyTorch and transformers (and PEFT), from the fixtures that native/tools/make_fixtures.py wrote: logits, log-probs, every
// gradient of a cross-entropy, and three AdamW steps of a policy loss.
#include <list>
#include <memory>
#include <string>

#include "support/cpu.h"
#include "support/check.h"
#include "support/fixture_file.h"
#include "support/folders.h"
#include "support/loss_settings.h"
#include "support/policies.h"
#include "backend/cpu_backend.h"
#include "backend/cpu_training.h"
#include "train/score.h"
#include "train/update.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

/// The architecture in a Hugging Face `config.json` with transformers 5's keys.
Architecture architecture_of(const FlatJson& config) {
  Architecture architecture;
  architecture.model_type = config.text("model_type") == "qwen2" ? ModelType::qwen2 : ModelType::qwen3;
  architecture.vocab_size = config.integer("vocab_size");
  architecture.hidden_size = config.integer("hidden_size");
  architecture.intermediate_size = config.integer("intermediate_size");
  architecture.num_hidden_layers = config.integer("num_hidden_layers");
  architecture.num_attention_heads = config.integer("num_attention_heads");
  architecture.num_key_value_heads = config.integer("num_key_value_heads");
  architecture.head_dim =
      config.has("head_dim") ? config.integer("head_dim") : architecture.hidden_size / architecture.num_attention_heads;
  architecture.rms_norm_eps = config.number("rms_norm_eps");
  architecture.rope_theta = config.number("rope_parameters/rope_theta");
  architecture.tie_word_embeddings = config.flag("tie_word_embeddings");
  architecture.max_position_embeddings = config.integer("max_position_embeddings");
  if (config.text("rope_parameters/rope_type") == "yarn") {
    YarnScaling yarn;
    yarn.factor = config.number("rope_parameters/factor");
    yarn.original_max_position_embeddings = config.integer("rope_parameters/original_max_position_embeddings");
    yarn.attention_factor = 0.1 * std::log(yarn.factor) + 1;
    architecture.yarn = yarn;
  }
  return architecture;
}

LoraSettings lora_of(const FlatJson& settings) {
  LoraSettings lora;
  lora.rank = settings.integer("lora/rank");
  lora.alpha = settings.number("lora/alpha");
  constexpr LoraTarget all[] = {LoraTarget::q_proj,    LoraTarget::k_proj,  LoraTarget::v_proj,   LoraTarget::o_proj,
                                LoraTarget::gate_proj, LoraTarget::up_proj, LoraTarget::down_proj};
  for (int i = 0; settings.has("lora/targets/" + std::to_string(i)); ++i)
    lora.targets.push_back(named(settings.text("lora/targets/" + std::to_string(i)), all));
  return lora;
}

struct Case {
  FixtureFile file;
  FlatJson settings;
  std::shared_ptr<Weights> weights;
  std::vector<std::vector<int32_t>> sequences;

  explicit Case(const std::string& name) : file(name), settings(file.metadata("settings")) {
    weights = std::make_shared<Weights>(architecture_of(file.metadata("config")));
    for (const NamedTensor<float>& tensor : weights->tensors()) fill(tensor.values, "weights." + tensor.name);
    weights->changed();
    for (int i = 0; file.has("tokens." + std::to_string(i)); ++i)
      sequences.push_back(file.integers("tokens." + std::to_string(i)));
    check(!sequences.empty(), "the fixture has sequences");
  }

  Policy policy() const {
    if (!settings.has_below("lora")) return Policy(std::make_shared<Weights>(*weights));
    Policy policy(weights, lora_of(settings), 1);
    for (const TensorPlace& place : policy.trained_places())
      fill(policy.trained().subspan(place.offset, place.size), "weights." + place.name);
    policy.changed();
    return policy;
  }

  void fill(std::span<float> values, const std::string& name) const {
    const std::vector<float> found = file.floats(name);
    check_equal(found.size(), values.size(), "size of " + name);
    std::copy(found.begin(), found.end(), values.begin());
  }
};

/// The greatest differences over all fixtures.
double greatest_logits = 0, greatest_gradient = 0;
/// Mean |difference| of log-probs in bf16 to fp32, relative to that of transformers.
double bf16_distance = 0;

constexpr const char* fixtures[] = {"qwen3_tied", "qwen3_untied", "qwen3_head48", "qwen3_head128", "qwen3_yarn",
                                    "qwen2_tied", "qwen2_untied", "qwen3_lora",   "qwen2_lora"};

/// Checks and returns the norm of the difference, relative to the norm of `expected`.
double check_close(std::span<const float> actual, const std::vector<float>& expected, double tolerance, const std::string& what) {
  check_equal(actual.size(), expected.size(), "size of " + what);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double(actual[i]) - expected[i], 2);
    norm += std::pow(double(expected[i]), 2);
  }
  check(norm > 0, what + " is all zero");
  const double relative = std::sqrt(difference / norm);
  check(relative <= tolerance, what + " differs by " + std::to_string(relative * 1e6) + "e-6");
  return relative;
}

std::vector<float> decoded_logits(const Policy& policy, const std::vector<int32_t>& tokens) {
  ThreadPool pool(1);
  std::vector<int32_t> blocks;
  for (size_t p = 0; p < tokens.size(); p += block_positions) blocks.push_back(int32_t(blocks.size()));
  KvCache cache(policy.architecture(), int(blocks.size()));
  const size_t vocab = size_t(policy.architecture().vocab_size);
  std::vector<float> logits(tokens.size() * vocab);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Feed feed{std::span(tokens).subspan(i, 1), int(i), blocks, true};
    extend(policy, cache, {&feed, 1}, &logits[i * vocab], pool);
  }
  return logits;
}

void logits_and_logprobs(const std::string& name) {
  const Case test(name);
  const Policy policy = test.policy();
  ThreadPool pool(2);
  for (size_t s = 0; s < test.sequences.size(); ++s) {
    const std::string suffix = "." + std::to_string(s);
    const std::vector<float> logits = decoded_logits(policy, test.sequences[s]), expected = test.file.floats("logits" + suffix);
    check_close(logits, expected, 5e-6, "logits" + suffix);
    double greatest = 0, scale = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      greatest = std::max(greatest, std::abs(double(logits[i]) - expected[i]));
      scale = std::max(scale, std::abs(double(expected[i])));
    }
    greatest_logits = std::max(greatest_logits, greatest / scale);
    check(greatest <= 1e-5 * scale, "greatest difference of logits: " + std::to_string(greatest / scale * 1e6) + "e-6");
    check_close(score(policy, test.sequences[s], 1, cpu(pool)), test.file.floats("logprobs" + suffix), 2e-6, "log-probs" + suffix);
  }
}

void gradients(const std::string& name) {
  const Case test(name);
  const Policy policy = test.policy();
  Forest forest;
  std::vector<int32_t> rows, targets;
  for (const std::vector<int32_t>& tokens : test.sequences) {
    const int node = forest.add(-1, tokens);
    for (size_t i = 1; i < tokens.size(); ++i) {
      rows.push_back(forest.nodes[node].first_row + int(i) - 1);
      targets.push_back(tokens[i]);
    }
  }
  std::vector<float> gradient(policy.trained().size());
  ThreadPool pool(2);
  CpuTraining pass(CpuDevice(pool, arithmetic()));
  pass.begin(policy, forest, rows, targets, 1);
  double loss = 0;
  pass.gradient(
      [&](std::span<const float> logprobs, std::span<const float>, std::span<double> derivatives, std::span<double>) {
        for (size_t i = 0; i < logprobs.size(); ++i) {
          loss -= double(logprobs[i]) / double(rows.size());
          derivatives[i] = -1.0 / double(rows.size());
        }
      },
      false, gradient.data());
  check_near(loss, test.file.floats("cross_entropy")[0], 1e-6, "cross-entropy");
  size_t compared = 0;
  for (const TensorPlace& place : policy.trained_places()) {
    const double relative = check_close(std::span(gradient).subspan(place.offset, place.size),
                                        test.file.floats("gradient." + place.name), 2e-5, "gradient of " + place.name);
    greatest_gradient = std::max(greatest_gradient, relative);
    ++compared;
  }
  check_equal(int(compared), test.settings.integer("gradients"), "tensors compared");
}

/// Every sequence is one sample in its own node; its first tokens are a prompt.
struct SampleBatch {
  std::vector<int32_t> nodes, tokens, rows, target_tokens, samples;
  std::vector<float> advantages, old, rollout;

  explicit SampleBatch(const Case& test) {
    const int prompt = test.settings.integer("update/prompt");
    for (size_t s = 0; s < test.sequences.size(); ++s) {
      const std::vector<int32_t>& sequence = test.sequences[s];
      const int first = int(tokens.size());
      nodes.insert(nodes.end(), {-1, int32_t(sequence.size()), 0});
      tokens.insert(tokens.end(), sequence.begin(), sequence.end());
      for (int i = prompt; i < int(sequence.size()); ++i) {
        rows.push_back(first + i - 1);
        target_tokens.push_back(sequence[i]);
        samples.push_back(int32_t(s));
      }
      append(advantages, test.file.floats("advantages." + std::to_string(s)));
      append(old, test.file.floats("old_logprobs." + std::to_string(s)));
      append(rollout, test.file.floats("rollout_logprobs." + std::to_string(s)));
    }
    check_equal(old.size(), rows.size(), "targets");
  }

  static void append(std::vector<float>& to, const std::vector<float>& more) { to.insert(to.end(), more.begin(), more.end()); }

  Batch view() const {
    return {.nodes = nodes,
            .tokens = tokens,
            .target_rows = rows,
            .target_tokens = target_tokens,
            .target_samples = samples,
            .target_advantages = advantages,
            .target_old_logprobs = old,
            .target_rollout_logprobs = rollout};
  }
};

/// Mean entropy of the distributions from PyTorch's logits, over the tokens after the prompts.
double expected_entropy(const Case& test, double temperature) {
  double sum = 0;
  int count = 0;
  for (size_t s = 0; s < test.sequences.size(); ++s) {
    const std::vector<float> logits = test.file.floats("logits." + std::to_string(s));
    const size_t vocab = logits.size() / test.sequences[s].size();
    for (size_t row = size_t(test.settings.integer("update/prompt")) - 1; row + 1 < test.sequences[s].size(); ++row, ++count) {
      const std::span<const float> z = std::span(logits).subspan(row * vocab, vocab);
      double total = 0, mean = 0;
      for (const float value : z) total += std::exp(double(value) / temperature);
      for (const float value : z) mean += std::exp(double(value) / temperature) / total * double(value) / temperature;
      sum += std::log(total) - mean;
    }
  }
  return sum / count;
}

void adamw_steps(const std::string& name) {
  const Case test(name);
  const auto number = [&](const char* key) { return test.settings.number(std::string("update/") + key); };
  UpdateSettings settings;
  settings.learning_rates = {number("learning_rate")};
  settings.optimizer.beta1 = number("beta1");
  settings.optimizer.beta2 = number("beta2");
  settings.optimizer.adam_eps = number("adam_eps");
  settings.optimizer.weight_decay = number("weight_decay");
  settings.optimizer.max_grad_norm = number("max_grad_norm");
  settings.temperature = number("temperature");
  settings.loss = loss_settings(test.settings, "update/loss");
  // The initial weights; with LoRA these are the weights under the adapters.
  if (settings.loss.wants_reference()) settings.reference = test.weights;
  const SampleBatch batch(test);
  const std::vector<float> losses = test.file.floats("update.losses"), norms = test.file.floats("update.grad_norms");
  ThreadPool pool(2);
  std::unique_ptr<Policy> policy = std::make_unique<Policy>(test.policy());
  for (size_t step = 0; step < losses.size(); ++step) {
    UpdateReport report = compute_update(*policy, batch.view(), settings, cpu(pool));
    check(report.applied, "applied: " + report.reason);
    policy = std::move(report.next);
    const std::map<std::string, double> metrics(report.metrics.begin(), report.metrics.end());
    const std::string title = " of step " + std::to_string(step);
    if (step == 0) check_near(metrics.at("entropy"), expected_entropy(test, settings.temperature), 1e-5, "entropy" + title);
    check_near(metrics.at("loss"), losses[step], 1e-5, "loss" + title);
    check_near(metrics.at("grad_norm"), norms[step], 1e-4, "gradient norm" + title);
  }
  for (const TensorPlace& place : std::as_const(*policy).trained_places())
    check_close(std::as_const(*policy).trained().subspan(place.offset, place.size), test.file.floats("updated." + place.name),
                1e-5, place.name + " after " + std::to_string(losses.size()) + " steps");
}

/// In bf16, the mean |difference| to fp32 is at most that of transformers in bfloat16, and a tenth.
void bf16_is_as_close_to_fp32_as_transformers() {
  double own_sum = 0, their_sum = 0;
  const FlatJson bf16 = FlatJson(read_text(FIXTURE_DIRECTORY "/bf16_logprobs.json"));
  for (const char* name : fixtures) {
    const Case test(name);
    const Policy policy = test.policy();
    ThreadPool pool(2);
    CpuBackend backend(pool, ops::Arithmetic::bf16);
    for (size_t s = 0; s < test.sequences.size(); ++s) {
      const std::vector<float> exact = test.file.floats("logprobs." + std::to_string(s)), own = score(policy, test.sequences[s], 1, backend);
      for (size_t i = 0; i < exact.size(); ++i) {
        const double theirs = bf16.number(std::string(name) + "/" + std::to_string(s) + "/" + std::to_string(i));
        own_sum += std::abs(double(own[i]) - double(exact[i]));
        their_sum += std::abs(theirs - double(exact[i]));
      }
    }
  }
  check(own_sum <= 1.1 * their_sum, "bf16 is " + std::to_string(own_sum / their_sum) + " times as far from fp32 as transformers");
  bf16_distance = own_sum / their_sum;
}

}  // namespace

int main() {
  std::list<std::string> titles;
  std::vector<Test> tests;
  const auto add = [&](const std::string& name, const char* what, void (*test)(const std::string&)) {
    titles.push_back(name + ": " + what);
    tests.emplace_back(titles.back().c_str(), [=] { test(name); });
  };
  for (const char* name : fixtures) {
    add(name, "logits and log-probs", logits_and_logprobs);
    add(name, "gradients", gradients);
    if (Case(name).settings.has_below("update")) add(name, "AdamW steps", adamw_steps);
  }
  tests.emplace_back("bf16 is as close to fp32 as transformers", bf16_is_as_close_to_fp32_as_transformers);
  const int failed = run(tests);
  print_figures({{"logits", greatest_logits}, {"gradients", greatest_gradient}, {"bf16_distance", bf16_distance}});
  return failed;
}
