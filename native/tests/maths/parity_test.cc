// Against PyTorch and transformers, from fixtures that tools/gen_fixtures.py wrote: logits, log-probs, every gradient, and
// three AdamW steps of the clipped policy loss.
#include <fstream>
#include <map>

#include "check.h"
#include "policies.h"
#include "train/forest_pass.h"
#include "train/score.h"
#include "train/update.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

using Arrays = std::map<std::string, std::vector<float>>;

Arrays read_fixture(const std::string& name) {
  std::ifstream file(FIXTURE_DIRECTORY "/" + name, std::ios::binary);
  check(bool(file), "cannot read fixture " + name);
  Arrays arrays;
  std::string array;
  size_t count = 0;
  while (file >> array >> count) {
    file.get();
    std::vector<float> values(count);
    file.read(reinterpret_cast<char*>(values.data()), std::streamsize(count * sizeof(float)));
    check(bool(file), "fixture " + name + " ends inside " + array);
    arrays[array] = std::move(values);
  }
  return arrays;
}

struct Case {
  Arrays arrays;
  Policy policy;
  std::vector<std::vector<int32_t>> sequences;

  explicit Case(bool tied) : arrays(read_fixture(tied ? "qwen3_tied.bin" : "qwen3_untied.bin")), policy(architecture(tied)) {
    for (const NamedTensor<float>& tensor : policy.tensors()) {
      if (tensor.name.starts_with("adam.")) continue;
      const std::vector<float>& values = arrays.at("weights." + tensor.name);
      check_equal(values.size(), tensor.values.size(), tensor.name);
      std::copy(values.begin(), values.end(), tensor.values.begin());
    }
    policy.weights_changed();
    for (int i = 0; i < 2; ++i) {
      const std::vector<float>& tokens = arrays.at("tokens." + std::to_string(i));
      sequences.emplace_back(tokens.begin(), tokens.end());
    }
  }

  static Architecture architecture(bool tied) {
    Architecture tiny;
    tiny.vocab_size = 40;
    tiny.hidden_size = 32;
    tiny.intermediate_size = 48;
    tiny.num_hidden_layers = 2;
    tiny.num_attention_heads = 4;
    tiny.num_key_value_heads = 2;
    tiny.head_dim = 32;
    tiny.rope_theta = 1e4;
    tiny.tie_word_embeddings = tied;
    tiny.max_position_embeddings = 128;
    return tiny;
  }

  const std::vector<float>& of(const std::string& name, size_t i) const { return arrays.at(name + "." + std::to_string(i)); }
};

/// Norm of the difference relative to the norm of what is expected.
void check_close(std::span<const float> actual, const std::vector<float>& expected, double tolerance, const std::string& what) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double(actual[i]) - expected[i], 2);
    norm += std::pow(double(expected[i]), 2);
  }
  const double relative = std::sqrt(difference / norm);
  check(relative <= tolerance, what + " differs by " + std::to_string(relative * 1e6) + "e-6");
}

void logits_and_logprobs(bool tied) {
  const Case test(tied);
  ThreadPool pool(1);
  for (size_t s = 0; s < test.sequences.size(); ++s) {
    const std::vector<int32_t>& tokens = test.sequences[s];
    const std::vector<int32_t> blocks = own_blocks(int(tokens.size()));
    KvCache cache(test.policy.architecture(), int(blocks.size()));
    std::vector<float> logits(tokens.size() * 40);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Feed feed{std::span(tokens).subspan(i, 1), int(i), blocks, true};
      extend(test.policy, cache, {&feed, 1}, &logits[i * 40], pool);
    }
    check_close(logits, test.of("logits", s), 2e-6, "logits of sequence " + std::to_string(s));
    double greatest = 0, scale = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      greatest = std::max(greatest, std::abs(double(logits[i]) - test.of("logits", s)[i]));
      scale = std::max(scale, std::abs(double(logits[i])));
    }
    check(greatest <= 1e-5 * scale, "greatest difference of logits: " + std::to_string(greatest));
    check_close(score(test.policy, tokens, 1), test.of("logprobs", s), 2e-6, "log-probs of sequence " + std::to_string(s));
  }
}

void gradients(bool tied) {
  const Case test(tied);
  Forest forest;
  std::vector<int32_t> rows, targets;
  for (const std::vector<int32_t>& tokens : test.sequences) {
    const int node = forest.add(-1, tokens);
    for (size_t i = 1; i < tokens.size(); ++i) {
      rows.push_back(forest.nodes[node].first_row + int(i) - 1);
      targets.push_back(tokens[i]);
    }
  }
  std::vector<float> gradient(test.policy.layout().total);
  ForestPass pass;
  pass.forward(test.policy, forest, rows);
  double loss = 0;
  PolicyPanels panels;
  test.policy.pack_backward(panels);
  pass.backward(
      panels, targets, 1,
      [&](size_t, float logprob) {
        loss -= logprob / double(rows.size());
        return -1.0 / double(rows.size());
      },
      gradient.data());
  check_near(loss, test.arrays.at("cross_entropy")[0], 1e-6, "cross-entropy");
  size_t compared = 0;
  for (const NamedTensor<const float>& tensor : test.policy.tensors()) {
    if (tensor.name.starts_with("adam.")) continue;
    const float* mine = gradient.data() + (tensor.values.data() - test.policy.weights().data());
    check_close({mine, tensor.values.size()}, test.arrays.at("gradient." + tensor.name), 2e-5, "gradient of " + tensor.name);
    ++compared;
  }
  check_equal(compared, size_t(tied ? 24 : 25), "tensors compared");
}

void adamw_steps(bool tied) {
  Case test(tied);
  OwnedBatch batch;
  for (size_t s = 0; s < test.sequences.size(); ++s) {
    const std::vector<int32_t>& tokens = test.sequences[s];
    const int first = int(batch.tokens.size()), shard = int(s) * 5;
    batch.add_node(-1, tokens, 0, shard);
    for (size_t i = 1; i < tokens.size(); ++i)
      batch.add_target(first + int(i) - 1, tokens[i], test.of("advantages", s)[i - 1], test.of("old_logprobs", s)[i - 1], 0, shard);
  }
  UpdateSettings settings;
  settings.learning_rates = {1e-2};
  settings.beta2 = 0.98;
  settings.adam_eps = 1e-4;
  settings.weight_decay = 0.1;
  settings.temperature = 0.7;
  settings.loss.kind = LossKind::clipped_policy;
  ThreadPool pool(2);
  for (int step = 0; step < 3; ++step) {
    const UpdateReport report = apply_update(test.policy, batch.view(), settings, pool);
    const std::map<std::string, double> metrics(report.metrics.begin(), report.metrics.end());
    const std::string title = " of step " + std::to_string(step);
    check_near(metrics.at("loss"), test.arrays.at("clipped_losses")[step], 1e-5, "loss" + title);
    check_near(metrics.at("grad_norm"), test.arrays.at("grad_norms")[step], 1e-5, "gradient norm" + title);
    check(metrics.at("clip_ratio") > 0.05, "the case clips");
  }
  for (const NamedTensor<const float>& tensor : std::as_const(test.policy).tensors())
    if (!tensor.name.starts_with("adam."))
      check_close(tensor.values, test.arrays.at("updated." + tensor.name), 1e-5, tensor.name + " after 3 steps");
}

}  // namespace

int main() {
  return run({{"tied: logits and log-probs", [] { logits_and_logprobs(true); }},
              {"tied: gradients", [] { gradients(true); }},
              {"tied: AdamW steps", [] { adamw_steps(true); }},
              {"untied: logits and log-probs", [] { logits_and_logprobs(false); }},
              {"untied: gradients", [] { gradients(false); }},
              {"untied: AdamW steps", [] { adamw_steps(false); }}});
}
