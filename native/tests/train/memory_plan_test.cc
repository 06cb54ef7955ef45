// Compares the memory plan with the memory that an update really takes.
#include "backend/cpu_backend.h"
#include "backend/cpu_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "support/check.h"
#include "support/policies.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool memory_is_its_own = false;  // a sanitizer's shadow memory is many times the memory of the program
#else
constexpr bool memory_is_its_own = true;
#endif

/// The greatest |taken / planned − 1| over all ways to train.
double greatest_deviation = 0;

Architecture middling_architecture() {
  Architecture architecture = tiny_architecture();
  architecture.vocab_size = 4096;
  architecture.hidden_size = 256;
  architecture.intermediate_size = 768;
  architecture.num_hidden_layers = 3;
  architecture.num_attention_heads = 8;
  architecture.num_key_value_heads = 4;
  architecture.max_position_embeddings = 2048;
  return architecture;
}

MemoryRequest request_of(const Architecture& architecture) {
  MemoryRequest request;
  request.architecture = architecture;
  request.threads = 2;
  request.batch_rows = 2048;
  request.longest_chain = 512;
  return request;
}

/// A field of /proc/self/status, in bytes.
double status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double kilobytes = 0;
    if (words >> name >> kilobytes && name == key + ":") return kilobytes * 1024;
  }
  throw Failure("/proc/self/status has no " + key);
}

/// Peak memory of `work`, in bytes, beyond the memory in use before. Runs in a process of its own, whose peak no other work has raised.
double peak_bytes(const std::function<void()>& work) {
  int ends[2];
  check(::pipe(ends) == 0, "pipe");
  const pid_t child = ::fork();
  check(child >= 0, "fork");
  if (child == 0) {
    double peak = -1;
    try {
      const double before = status_bytes("VmRSS");
      work();
      peak = status_bytes("VmHWM") - before;
    } catch (const std::exception& error) {
      std::printf("        %s\n", error.what());
      std::fflush(stdout);
    }
    const bool told = ::write(ends[1], &peak, sizeof peak) == sizeof peak;
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  double peak = -1;
  const bool heard = ::read(ends[0], &peak, sizeof peak) == sizeof peak;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  check(heard && peak >= 0, "the process that was measured failed");
  return peak;
}

/// A batch of `rows` rows in sequences of 512 tokens; every token but the first of each sequence is a target.
OwnedBatch rows_of(int rows, int vocab) {
  OwnedBatch batch;
  for (int s = 0; s < rows / 512; ++s) {
    const std::vector<int32_t> tokens = random_tokens(512, vocab, uint32_t(s));
    batch.add_node(-1, tokens, 0);
    for (int i = 1; i < 512; ++i) batch.add_target(s * 512 + i - 1, tokens[size_t(i)], 1, 0, s);
  }
  return batch;
}

void an_update_takes_the_memory_that_was_planned() {
  if (!memory_is_its_own) return;
  struct Way {
    const char* name;
    bool lora, recompute;
    int pass_rows;
    MomentFormat moments;
    ops::Arithmetic arithmetic = ops::Arithmetic::fp32;
  };
  const Architecture architecture = middling_architecture();
  for (const Way way : {Way{"one pass", false, false, 2048, MomentFormat::fp32}, Way{"passes of 512", false, false, 512, MomentFormat::int8},
                        Way{"recomputed", false, true, 2048, MomentFormat::fp32}, Way{"LoRA", true, false, 1024, MomentFormat::fp32},
                        Way{"bf16", false, false, 1024, MomentFormat::fp32, ops::Arithmetic::bf16}}) {
    MemoryRequest request = request_of(architecture);
    request.recompute = way.recompute;
    request.pass_rows = way.pass_rows;
    request.moments = way.moments;
    if (way.lora) request.lora = lora_settings(8, 16);
    const MemoryPlan plan = plan_memory(request, way.arithmetic);
    const OwnedBatch batch = rows_of(2048, architecture.vocab_size);
    const double taken = peak_bytes([&] {
      ThreadPool pool(2);
      auto weights = std::make_shared<Weights>(architecture);
      weights->initialize(0.02, 1);
      auto held = way.lora ? std::make_unique<Policy>(std::shared_ptr<const Weights>(std::move(weights)), lora_settings(8, 16), 2, way.moments)
                           : std::make_unique<Policy>(std::move(weights), way.moments);
      UpdateSettings settings;
      settings.learning_rates = {1e-3};
      settings.passes = {way.pass_rows, way.recompute};
      CpuBackend backend(pool, way.arithmetic);
      Trainer trainer(backend);
      // Moments are pages of zeros, which take no memory, until the first step has written them.
      for (int step = 0; step < 2; ++step) {
        UpdateReport report = trainer.update(*held, batch.view(), settings);
        check(report.applied, "applied");
        trainer.recycle(std::exchange(held, std::move(report.next)));
      }
    });
    const double planned = double(plan.total);
    greatest_deviation = std::max(greatest_deviation, std::abs(taken / planned - 1));
    check(std::abs(taken / planned - 1) < 0.05, std::string(way.name) + ": " + std::to_string(taken / 1e6) + " MB of " +
                                                    std::to_string(planned / 1e6) + " MB planned");
  }
}

void each_setting_changes_its_part_of_the_plan() {
  const Architecture architecture = middling_architecture();
  const MemoryRequest plain = request_of(architecture);
  const MemoryPlan plan = plan_memory(plain);
  const size_t parameters = ParameterLayout(architecture).total;
  check_equal(plan.weights, parameters * 4, "weights");
  check_equal(plan.panels, (parameters - ParameterLayout(architecture).layers.size() * (2 * 256 + 2 * 32) - 256) * 4, "panels of all matrices");
  check_equal(plan.moments, parameters * 8, "moments");
  check_equal(plan.gradients, parameters * 4, "gradients");
  check_equal(plan.next_policy, plan.weights + plan.panels + plan.moments, "next policy");
  check_equal(plan.keys_values, size_t{0}, "nothing is kept over one pass");
  check_equal(plan.reference, size_t{0}, "no reference");
  check_equal(plan.total, plan.weights + plan.panels + plan.moments + plan.next_policy + plan.gradients + plan.backward_panels + plan.rope +
                              plan.activations + plan.head, "total");

  MemoryRequest other = plain;
  other.pass_rows = 512;
  check(plan_memory(other).activations < plan.activations / 2, "smaller passes");
  check_equal(plan_memory(other).keys_values, size_t(2 * 3 * 2048 * 2 * 128 * 4), "keys and values of all rows, and their gradients");
  other = plain;
  other.recompute = true;
  check(plan_memory(other).activations < plan.activations * 2 / 3, "recomputation");
  other = plain;
  other.moments = MomentFormat::int8;
  check_near(double(plan_memory(other).moments), double(parameters) * (2 + 8.0 / 256), 1e-5, "moments in 8 bits");
  other = plain;
  other.reference = true;
  check_equal(plan_memory(other).reference, plan.weights + plan.panels + plan.rope, "a reference has a rotary table of its own");
  other = plain;
  other.lora = lora_settings(8, 16);
  check(plan_memory(other).moments < plan.moments / 10 && plan_memory(other).next_policy < plan.next_policy / 10 &&
            plan_memory(other).gradients < plan.gradients / 10,
        "adapters are small");
  other = plain;
  other.kv_cache_bytes = 12345;
  check_equal(plan_memory(other).total - plan.total, size_t{12345}, "KV cache");
}

/// With long contexts, the rotary table is too large to hide in the tolerance of the other tests.
void the_rotary_table_is_planned_for_every_position() {
  MemoryRequest request = request_of(middling_architecture());
  const MemoryPlan brief = plan_memory(request);
  request.architecture.max_position_embeddings = 262'144;
  const MemoryPlan longer = plan_memory(request);
  // Each position has a cosine and a sine for every pair of a head's 32 values.
  check_equal(brief.rope, size_t{2048} * 2 * 16 * 4, "table of 2048 positions");
  check_equal(longer.rope, size_t{262'144} * 2 * 16 * 4, "table of 262144 positions");
  check_equal(longer.total - brief.total, longer.rope - brief.rope, "nothing else grows with the positions a model may have");
  if (!memory_is_its_own) return;
  const double taken = peak_bytes([&] { RopeTable table(request.architecture); });
  check(std::abs(taken / double(longer.rope) - 1) < 0.05,
        std::to_string(taken / 1e6) + " MB of " + std::to_string(double(longer.rope) / 1e6) + " MB planned");
}

void the_description_has_all_figures() {
  MemoryRequest request = request_of(middling_architecture());
  request.reference = true;
  const std::string text = describe(plan_memory(request), size_t{100} << 20);
  for (const char* part : {"needs ", "weights ", "moments ", "next policy ", "gradients ", "reference ", "activations ", "head ", "MiB",
                           "; 100.0 MiB are free"})
    check(text.find(part) != std::string::npos, "\"" + text + "\" says \"" + part + "\"");
  check(text.find("KV cache") == std::string::npos, "what is not needed is left out: " + text);
}

}  // namespace

int main() {
  const int failed = run({{"an update takes the memory that was planned", an_update_takes_the_memory_that_was_planned},
                          {"each setting changes its part of the plan", each_setting_changes_its_part_of_the_plan},
                          {"the rotary table is planned for every position", the_rotary_table_is_planned_for_every_position},
                          {"the description has all figures", the_description_has_all_figures}});
  if (memory_is_its_own) print_figures({{"deviation", greatest_deviation}});
  return failed;
}
