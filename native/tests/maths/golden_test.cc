// Log-probs and weights of a tiny run, committed as bits: a compiler, machine or change of code that moves one bit of the
// numerics shows here. A change on purpose raises the engine's numerics version and writes the file anew:
// `golden_test --write`.
#include <cinttypes>
#include <fstream>

#include "check.h"
#include "policies.h"
#include "train/score.h"
#include "train/update.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

const char* const golden_path = FIXTURE_DIRECTORY "/golden.txt";

uint64_t hash_of(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> 8 * i & 0xff)) * 0x100000001b3ull;
  }
  return hash;
}

std::string describe() {
  std::string text;
  char line[128];
  const auto add_hash = [&](const char* what, std::span<const float> values) {
    std::snprintf(line, sizeof line, "%s %016" PRIx64 "\n", what, hash_of(values));
    text += line;
  };
  Architecture architecture = tiny_architecture();
  Policy policy(architecture);
  policy.initialize(0.2, 2024);
  ThreadPool pool(2);
  add_hash("initial weights", policy.weights());
  add_hash("rope cosines", {policy.rope_cos(), size_t(architecture.max_position_embeddings) * architecture.head_dim / 2});
  UpdateSettings settings;
  settings.learning_rates = {1e-2, 1e-2, 5e-3};
  settings.weight_decay = 0.01;
  settings.loss.kind = LossKind::clipped_policy;
  apply_update(policy, group_batch(architecture.vocab_size, 3, 8, 37, 2, 15).view(), settings, pool);
  add_hash("weights after 3 updates", policy.weights());
  add_hash("first moments", policy.first_moments());
  add_hash("second moments", policy.second_moments());
  const std::vector<float> logprobs = score(policy, random_tokens(40, architecture.vocab_size, 77), 0.8);
  for (const float logprob : logprobs) {
    std::snprintf(line, sizeof line, "log-prob %a\n", double(logprob));
    text += line;
  }
  return text;
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
