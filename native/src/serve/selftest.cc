#include "serve/selftest.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/float_text.h"
#include "base/philox.h"
#include "ops/ops.h"
#include "serve/generation/scheduler.h"
#include "serve/protocol/request.h"
#include "state/digest/blake3.h"
#include "state/digest/digest.h"
#include "state/digest/sha256.h"
#include "train/score.h"
#include "train/update.h"

namespace longhaul {
namespace {

Architecture tiny_architecture(ModelType type) {
  Architecture architecture;
  architecture.model_type = type;
  architecture.hidden_size = 64;
  architecture.num_hidden_layers = 2;
  architecture.num_attention_heads = 4;
  architecture.num_key_value_heads = 2;
  architecture.rope_theta = 10000;
  architecture.max_position_embeddings = 1024;
  return architecture;
}

struct Model {
  const char* name;
  ModelType type = ModelType::qwen3;
  bool lora = false;
  MomentFormat moments = MomentFormat::fp32;
  int head_dim = 32, intermediate = 96, vocabulary = 96, prompt = 5, fresh = 75;
};

constexpr Model models[] = {{.name = "qwen3"},
                            {.name = "qwen2", .type = ModelType::qwen2},
                            {.name = "qwen3 with LoRA", .lora = true},
                            {.name = "qwen3 with moments in 8 bits", .moments = MomentFormat::int8}};
// On a GPU also models with other kernels or tiles: larger heads, long prompts, products of few rows and large products. With them, every kernel
// for heads of up to 128 is launched.
constexpr Model gpu_models[] = {
    {.name = "qwen3 with heads of 64", .head_dim = 64, .intermediate = 2048, .prompt = 200},
    {.name = "qwen3 with heads of 128 and large matrices", .head_dim = 128, .intermediate = 4352, .vocabulary = 17'000, .prompt = 600},
    {.name = "qwen3 with three tokens", .prompt = 1, .fresh = 2}};

// Replaces zeros (in biases and in B of an adapter), because a missing term would not show if it were zero.
void fill_zeros(std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) values[i] = 0.1f * philox_uniform(philox4x32_10({static_cast<std::uint32_t>(i), 0, 0, 0}, {1, 2})[0]);
  }
}

Policy make_policy(const Model& model, ThreadPool& pool) {
  Architecture architecture = tiny_architecture(model.type);
  architecture.vocab_size = model.vocabulary;
  architecture.head_dim = model.head_dim;
  architecture.intermediate_size = model.intermediate;
  auto weights = std::make_shared<Weights>(architecture, &pool);
  weights->initialize(0.2, 7, &pool);
  fill_zeros(weights->values());
  if (!model.lora) return Policy(std::move(weights), model.moments);
  LoraSettings lora;
  lora.rank = 4;
  lora.alpha = 8;
  lora.targets = {LoraTarget::q_proj, LoraTarget::v_proj, LoraTarget::o_proj, LoraTarget::up_proj, LoraTarget::down_proj};
  Policy policy(std::shared_ptr<const Weights>(std::move(weights)), lora, 9);
  fill_zeros(policy.trained());
  return policy;
}

struct Results {
  std::string state;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<float> second;  // log-probs of the second sample
  std::vector<float> scored;
  std::string trained;
};

// Trains one step on the second half of the sampled tokens, with the log-probs of sampling.
std::string train(const Policy& policy, const std::vector<std::int32_t>& tokens, const std::vector<float>& logprobs,
                  Backend& backend, ThreadPool& pool) {
  const std::vector<std::int32_t> nodes{-1, static_cast<std::int32_t>(tokens.size()), 0};
  std::vector<std::int32_t> rows, targets, samples;
  std::vector<float> advantages, old;
  const std::size_t prompt = tokens.size() - logprobs.size();
  for (std::size_t i = logprobs.size() / 2; i < logprobs.size(); ++i) {
    rows.push_back(static_cast<std::int32_t>(prompt + i - 1));
    targets.push_back(tokens[prompt + i]);
    samples.push_back(0);
    advantages.push_back(0.5f);
    old.push_back(logprobs[i]);
  }
  Batch batch;
  batch.nodes = nodes;
  batch.tokens = tokens;
  batch.target_rows = rows;
  batch.target_tokens = targets;
  batch.target_samples = samples;
  batch.target_advantages = advantages;
  batch.target_old_logprobs = old;
  UpdateSettings settings;
  settings.learning_rates = {1e-2};
  settings.loss.kind = LossKind::regular;
  settings.loss.eps_clip_low = settings.loss.eps_clip_high = 0.2;
  settings.loss.entropy_weight = 0.01;
  Trainer trainer(backend);
  const UpdateReport report = trainer.update(policy, batch, settings);
  if (!report.applied) return report.reason;
  const std::string digest = state_digest(*report.next, backend, pool).digest, copied = state_digest(*report.next, pool);
  return digest == copied ? digest : digest + ", copied to the host as " + copied;
}

Results run(const Model& model, Backend& backend, ThreadPool& pool) {
  const auto held = std::make_shared<const Policy>(make_policy(model, pool));
  const Policy& policy = *held;
  backend.hold(held);
  GenerationCounters counters;
  Scheduler scheduler(policy.architecture(), 0, counters, backend);
  // Two samples of a prompt: if they diverge within a block of the cache, the block is copied.
  for (std::uint32_t sample = 0; sample < 2; ++sample) {
    Generation generation;
    generation.id = sample;
    for (int i = 1; i <= model.prompt; ++i) generation.tokens.push_back(i % model.vocabulary);
    generation.prompt_length = std::size_t(model.prompt);
    generation.max_length = std::size_t(model.prompt + model.fresh);
    generation.key.seed = 11;
    generation.key.sample = sample;
    scheduler.submit(std::move(generation));
  }
  std::vector<Finished> finished;
  while (!scheduler.idle()) scheduler.step(policy, backend, true, finished);
  Results results;
  results.state = state_digest(policy, pool);
  for (const Finished& one : finished) {
    if (one.generation.id > 0) {
      results.second = one.generation.logprobs;
      continue;
    }
    results.tokens = one.generation.tokens;
    results.logprobs = one.generation.logprobs;
  }
  const auto all = score(policy, results.tokens, 1.0, backend);
  results.scored.assign(all.end() - static_cast<std::ptrdiff_t>(results.logprobs.size()), all.end());
  results.trained = train(policy, results.tokens, results.logprobs, backend, pool);
  return results;
}

Results run_on_cpu(const Model& model, int threads, const Oracle& oracle) {
  ThreadPool pool(threads);
  return run(model, *oracle.make_backend(pool), pool);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool same(const Results& a, const Results& b) {
  return a.state == b.state && a.tokens == b.tokens && same_bits(a.logprobs, b.logprobs) && same_bits(a.second, b.second) &&
         same_bits(a.scored, b.scored) && a.trained == b.trained;
}

std::string first_difference(const char* operation, const std::vector<float>& device, const std::vector<float>& right, const char* oracle) {
  for (std::size_t i = 0; i < std::min(device.size(), right.size()); ++i) {
    if (std::memcmp(&device[i], &right[i], sizeof(float)) == 0) continue;
    return std::string(operation) + ": log-prob " + std::to_string(i) + " of " + std::to_string(right.size()) + " is " +
           text_with_bits(device[i]) + " on the device and " + text_with_bits(right[i]) + " on the " + oracle;
  }
  return device.size() == right.size() ? "" : std::string(operation) + ": another number of log-probs";
}

// Empty if there is no difference.
std::string difference(const Results& device, const Results& right, const char* oracle) {
  std::string text = first_difference("sampling", device.logprobs, right.logprobs, oracle);
  if (text.empty() && device.tokens != right.tokens) text = "sampling: other tokens from the same log-probs";
  if (text.empty()) text = first_difference("a second sample", device.second, right.second, oracle);
  if (text.empty()) text = first_difference("scoring", device.scored, right.scored, oracle);
  if (text.empty() && device.trained != right.trained)
    text = "a step of training: the state is " + device.trained + " on the device and " + right.trained + " on the " + oracle;
  return text;
}

void require_same_bits(const Model& model, Backend& device, ThreadPool& pool) {
  const Oracle& oracle = device.numerics().oracle;
  const Results expected = run(model, *oracle.make_backend(pool), pool);
  if (expected.trained.size() != 64) throw std::logic_error(std::string(model.name) + ": the step of training is not applied: " + expected.trained);
  const std::string text = difference(run(model, device, pool), expected, oracle.name);
  if (text.empty()) return;
  throw RequestError("DeviceDiffers", device.device().name + " computes other bits than this machine's " + oracle.name +
                                          ", so it may not train. " + model.name + ", " + text + ". Try another driver or another GPU; LONGHAUL_DEVICE=cpu computes on the CPU");
}

bool check(bool holds, const std::string& what) {
  std::printf("%s %s\n", holds ? "ok  " : "FAIL", what.c_str());
  return holds;
}

bool check_blake3() {
  // Long enough that every lane gets more than one chunk.
  std::vector<std::byte> message(100'000);
  for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i % 251);
  const Blake3Digest expected = blake3(message, Blake3Code::portable);
  bool good = to_hex(blake3({})) == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
  for (const Blake3Code code : {Blake3Code::avx2, Blake3Code::avx512}) {
    if (blake3_supported(code)) good = good && blake3(message, code) == expected;
  }
  return good;
}

bool check_device(MakeBackend make_backend) {
  ThreadPool pool(1);
  try {
    const auto backend = make_backend(pool);
    const DeviceInfo device = backend->device();
    return device.kind == "cpu" || check(true, device.name + ": the same bits as the CPU");
  } catch (const RequestError& error) {
    return check(false, std::string(error.code) + ": " + error.what());
  } catch (const std::exception& error) {
    return check(false, error.what());
  }
}

}  // namespace

int run_selftest(MakeBackend make_backend, const Numerics& numerics) {
  bool good = check(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "sha256");
  good &= check(check_blake3(), "blake3");
  for (const Model& model : models) {
    const std::string prefix = std::string(model.name) + ", ";
    ops::set_instruction_set(ops::InstructionSet::scalar);
    const Results reference = run_on_cpu(model, 1, numerics.oracle);
    good &= check(same_bits(reference.logprobs, reference.scored), prefix + "scalar: sampled log-probs equal scored ones");
    good &= check(reference.trained.size() == 64, prefix + "scalar: a step of training is applied");
    for (const auto set : {ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
      const std::string name = prefix + ops::name(set);
      if (!ops::supported(set)) {
        std::printf("skip %s: this machine does not have it\n", name.c_str());
        continue;
      }
      ops::set_instruction_set(set);
      for (const int threads : {1, 2}) {
        good &= check(same(run_on_cpu(model, threads, numerics.oracle), reference), name + ", " + std::to_string(threads) + " threads: the same bits as scalar");
      }
    }
  }
  good &= check_device(make_backend);
  return good ? 0 : 1;
}

void require_oracle_bits(Backend& device, ThreadPool& pool) {
  for (const Model& model : models) require_same_bits(model, device, pool);
  if (device.device().kind != "cuda") return;
  for (const Model& model : gpu_models) require_same_bits(model, device, pool);
}

}  // namespace longhaul
