// Log-probs and weights of two tiny runs, committed as bits: this test fails if a compiler, a machine or a code change moves one bit of the
// numerics. For an intended change, raise the engine's numerics version and write the file again with `golden_test --write`.
#include <cinttypes>
#include <fstream>

#include "support/cpu.h"
#include "support/check.h"
#include "support/policies.h"
#include "train/score.h"
#include "train/update.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const char* const golden_path = FIXTURE_DIRECTORY "/golden.txt";

/// The lines of the golden file.
class Record {
 public:
  template <class T>
  void add(const char* what, std::span<const T> values) {
    char line[128];
    std::snprintf(line, sizeof line, "%s %016" PRIx64 "\n", what, hash_of(std::as_bytes(values)));
    text_ += line;
  }
  void add_logprobs(const Policy& policy, ThreadPool& pool) {
    for (const float logprob : score(policy, random_tokens(40, policy.architecture().vocab_size, 77), 0.8, cpu(pool))) {
      char line[128];
      std::snprintf(line, sizeof line, "log-prob %a\n", double(logprob));
      text_ += line;
    }
  }
  const std::string& text() const { return text_; }

 private:
  static uint64_t hash_of(std::span<const std::byte> bytes) {
    uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
    for (const std::byte byte : bytes) hash = (hash ^ uint64_t(byte)) * 0x100000001b3ull;
    return hash;
  }

  std::string text_;
};

void describe_full_fine_tuning(Record& record, ThreadPool& pool) {
  const Architecture architecture = tiny_architecture();
  Policy policy = random_policy(architecture, 0.2, 2024);
  record.add("initial weights", std::as_const(policy).weights().values());
  const size_t angles = size_t(architecture.max_position_embeddings) * size_t(architecture.head_dim) / 2;
  record.add("rope cosines", std::span<const float>(policy.weights().rope().cos(), angles));
  UpdateSettings settings;
  settings.learning_rates = {1e-2, 1e-2, 5e-3};
  settings.optimizer.weight_decay = 0.01;
  settings.loss = loss_of(LossKind::regular);
  apply_update(policy, group_batch(architecture.vocab_size, 3, 8, 37, 2, 15).view(), settings, pool);
  const Policy& after = policy;
  record.add("weights after 3 updates", after.weights().values());
  record.add("first moments", after.moments().first.span());
  record.add("second moments", after.moments().second.span());
  record.add_logprobs(policy, pool);
}

/// The other model family, with YaRN, adapters, 8-bit moments, and a loss with every term.
void describe_lora(Record& record, ThreadPool& pool) {
  Architecture architecture = tiny_architecture();
  architecture.model_type = ModelType::qwen2;
  architecture.head_dim = 48;
  architecture.yarn = YarnScaling{2, 64, 32, 1, 1.0693147};
  Policy policy = tiny_lora_policy(9, architecture, lora_settings(), MomentFormat::int8);
  OwnedBatch batch = group_batch(architecture.vocab_size, 2, 4, 37, 2, 15);
  for (const float old : batch.old_logprobs) batch.rollout_logprobs.push_back(old + 0.1f);
  UpdateSettings settings;
  settings.learning_rates = {1e-2, 1e-2};
  settings.loss = loss_of(LossKind::gspo, LossReduction::sequence_mean);
  settings.loss.eps_clip_low = 1;
  settings.loss.eps_clip_high = 1e6;
  settings.loss.kl_weight = 0.1;
  settings.loss.entropy_weight = 0.01;
  settings.loss.tis_cap = 2;
  settings.reference = policy.shared_weights();
  apply_update(policy, batch.view(), settings, pool);
  const Policy& after = policy;
  record.add("adapters after 2 updates", after.trained());
  record.add("first moments' codes", std::span<const int8_t>(after.moments().first_codes));
  record.add("first moments' scales", after.moments().first_scales.span());
  record.add("second moments' codes", std::span<const uint8_t>(after.moments().second_codes));
  record.add("second moments' scales", after.moments().second_scales.span());
  record.add_logprobs(policy, pool);
}

std::string describe() {
  Record record;
  ThreadPool pool(2);
  describe_full_fine_tuning(record, pool);
  describe_lora(record, pool);
  return record.text();
}

void bits_are_the_committed_ones() {
  std::ifstream file(golden_path);
  check(bool(file), std::string("cannot read ") + golden_path);
  std::istringstream actual(describe());
  std::string wanted, line;
  while (std::getline(file, wanted)) {
    check(bool(std::getline(actual, line)), "the file has more lines");
    check_equal(line, wanted, "line");
  }
  check(!std::getline(actual, line), "the file has fewer lines");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--write") {
    std::ofstream(golden_path) << describe();
    return 0;
  }
  int status = 0;
  for (const auto set : {ops::InstructionSet::scalar, ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
    if (!ops::supported(set)) continue;
    ops::set_instruction_set(set);
    status |= run({{ops::name(set), bits_are_the_committed_ones}});
  }
  return status;
}
