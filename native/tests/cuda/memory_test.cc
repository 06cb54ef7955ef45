// Compares the plan of a device's memory with the memory that is requested from the emulated device. All rows but one of a text are targets, as
// the plan assumes.
#include <cmath>
#include <cstdio>
#include <sstream>

#include "cuda/cuda_backend.h"
#include "cuda/device/emulated/allocations.h"
#include "cuda/host/device_plan.h"
#include "support/folders.h"
#include "support/updates.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int text_length = 130;

OwnedBatch texts(int vocab) {
  OwnedBatch batch;
  for (int text = 0; text < 5; ++text) {
    const std::vector<int32_t> tokens = random_tokens(text_length, vocab, std::uint32_t(text));
    const int first = int(batch.tokens.size());
    batch.add_node(-1, tokens, 0);
    for (int i = 1; i < text_length; ++i) batch.add_target(first + i - 1, tokens[std::size_t(i)], 1.0f, -3.5f, text);
  }
  return batch;
}

std::size_t asked_for(const Policy& policy, const OwnedBatch& batch, const UpdateSettings& settings) {
  cuda::emulated::start_counting();
  cuda::CudaBackend device;
  device.hold(std::make_shared<const Policy>(policy));
  const auto held = std::make_shared<const Policy>(policy);
  device.hold(held);
  check(compute_update(*held, batch.view(), settings, device).applied, "applied");
  return cuda::emulated::most_bytes();
}

void an_update_takes_what_is_planned() {
  const Architecture architecture = tiny_architecture();
  const std::pair<std::string, Policy> policies[] = {
      {"full", tiny_policy(7, architecture)}, {"full, int8", tiny_policy(7, architecture, MomentFormat::int8)}, {"LoRA", tiny_lora_policy(7, architecture)}};
  for (const auto& [name, policy] : policies) {
    const OwnedBatch batch = texts(architecture.vocab_size);
    for (const ForestPassSettings passes : {ForestPassSettings{1 << 30, false}, ForestPassSettings{1 << 30, true},
                                            ForestPassSettings{512, false}, ForestPassSettings{512, true}}) {
      UpdateSettings settings = policy_settings({1e-2});
      settings.passes = passes;
      MemoryRequest request;
      request.architecture = architecture;
      if (policy.adapters()) request.lora = policy.adapters()->settings();
      request.moments = policy.moments().format;
      request.pass_rows = passes.pass_rows;
      request.recompute = passes.recompute;
      request.batch_rows = int(batch.tokens.size());
      request.longest_chain = text_length;
      const double ratio = double(asked_for(policy, batch, settings)) / double(cuda::plan_device_memory(request).total);
      check(ratio > 0.95 && ratio <= 1, name + ": " + std::to_string(ratio) + " of the plan");
    }
  }
}

/// Sampling during an update, without the cache: as many rows as a call may have, each but one with a draw, so that their rows are copied.
void sampling_takes_what_is_planned() {
  const Architecture architecture = tiny_architecture();
  for (const auto& [name, policy] : {std::pair("full", tiny_policy(7, architecture)), {"LoRA", tiny_lora_policy(7, architecture)}}) {
    MemoryRequest request;
    request.architecture = architecture;
    if (policy.adapters()) request.lora = policy.adapters()->settings();
    const auto planned = [&](std::size_t cache) {
      request.kv_cache_bytes = cache;
      return cuda::plan_device_memory(request);
    };
    cuda::emulated::start_counting();
    cuda::CudaBackend device;
    const auto held = std::make_shared<const Policy>(policy);
    device.hold(held);
    const std::unique_ptr<BlockCache> cache = device.make_cache(architecture, most_feed_rows);
    const std::size_t before = cuda::emulated::most_bytes();  // from which most is counted: cache and weights
    std::vector<int32_t> blocks(std::size_t(most_feed_rows), 0), token{1};
    std::vector<Feed> feeds;
    for (int i = 0; i < most_feed_rows; ++i) {
      blocks[std::size_t(i)] = i;
      feeds.push_back({token, 0, std::span(blocks).subspan(std::size_t(i), 1), i > 0});
    }
    const std::vector<DrawRequest> draws(feeds.size() - 1, DrawRequest{1.0f, 0.5f, 1, 0});
    std::vector<Drawn> drawn(draws.size());
    for (int call = 0; call < 2; ++call) device.extend(*held, *cache, feeds, draws, drawn);
    const double planned_bytes = double(planned(1).activations - planned(0).activations);
    const double ratio = double(cuda::emulated::most_bytes() - before) / planned_bytes;
    check(ratio > 0.95 && ratio <= 1.05, std::string(name) + ": " + std::to_string(ratio) + " of the plan");
  }
}

/// Plan in GiB of a Qwen3 model with passes of 4,096 rows that are recomputed, and the engine's usual cache.
double planned_gib(Architecture architecture, MomentFormat moments, bool lora) {
  architecture.vocab_size = 151'936;
  architecture.num_key_value_heads = 8;
  architecture.head_dim = 128;
  architecture.max_position_embeddings = 40'960;
  MemoryRequest request;
  request.architecture = architecture;
  request.moments = moments;
  if (lora) request.lora = lora_settings(16, 32);
  request.kv_cache_bytes = std::size_t{256} << 20;
  request.pass_rows = 4096;
  request.recompute = true;
  request.batch_rows = request.longest_chain = 16'384;
  return double(cuda::plan_device_memory(request).total) / double(1 << 30);
}

/// People choose a GPU by this table.
void the_table_of_models_has_the_plans() {
  struct Model {
    const char* name;
    int hidden, intermediate, layers, heads;
    bool tied;
  };
  const std::string page = read_text(FIXTURE_DIRECTORY "/../../../docs/engine.md");
  for (const Model& model : {Model{"Qwen3-0.6B", 1024, 3072, 28, 16, true}, {"Qwen3-1.7B", 2048, 6144, 28, 16, true},
                             {"Qwen3-4B", 2560, 9728, 36, 32, true}, {"Qwen3-8B", 4096, 12'288, 36, 32, false},
                             {"Qwen3-14B", 5120, 17'408, 40, 40, false}}) {
    Architecture architecture;
    architecture.hidden_size = model.hidden;
    architecture.intermediate_size = model.intermediate;
    architecture.num_hidden_layers = model.layers;
    architecture.num_attention_heads = model.heads;
    architecture.tie_word_embeddings = model.tied;
    const double plans[] = {planned_gib(architecture, MomentFormat::fp32, false), planned_gib(architecture, MomentFormat::int8, false),
                            planned_gib(architecture, MomentFormat::fp32, true)};
    std::printf("%s: %.1f, %.1f with int8 moments, %.1f with LoRA\n", model.name, plans[0], plans[1], plans[2]);
    const std::size_t row = page.find(std::string("\n") + model.name + " |");
    check(row != std::string::npos, std::string(model.name) + " has a row");
    std::istringstream cells(page.substr(row + 1, page.find('\n', row + 1) - row - 1));
    std::string cell;
    std::getline(cells, cell, '|');
    for (const double plan : plans) {
      std::getline(cells, cell, '|');
      check(std::abs(std::stod(cell) - plan) <= 0.5, std::string(model.name) + ": the page says" + cell + "GiB, the plan " + std::to_string(plan));
    }
  }
}

/// Weights and moments, of which each has more than 4 MiB; not packed matrices, angles and caches.
void the_pages_of_a_state_are_locked() {
  const cuda::CudaBackend device;
  const std::size_t before = cuda::emulated::locked_bytes();
  {
    Architecture architecture = tiny_architecture();
    architecture.vocab_size = 40'000;
    const Policy policy = tiny_policy(7, architecture), copy(policy);
    check_equal(cuda::emulated::locked_bytes() - before, 6 * policy.trained().size_bytes(), "locked bytes of two policies");
  }
  check_equal(cuda::emulated::locked_bytes(), before, "locked bytes behind them");
}

}  // namespace

int main() {
  return run({{"an update takes what is planned", an_update_takes_what_is_planned},
              {"sampling takes what is planned", sampling_takes_what_is_planned},
              {"the table of models has the plans", the_table_of_models_has_the_plans},
              {"the pages of a state are locked", the_pages_of_a_state_are_locked}});
}
