#include "serve/policy/memory_guard.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu_memory.h"
#include "serve/protocol/request.h"
#include "serve/generation/scheduler.h"

namespace longhaul {
namespace {

// Rows of a pass, for planning a load if the peer gives no number: the batches are not known yet.
constexpr int planned_rows = 4096;
// Larger passes than this are no faster.
constexpr int most_pass_rows = 32768;

Json figures(const MemoryPlan& plan, std::size_t available) {
  Json json;
  for (const MemoryPart& part : parts(plan)) json.set(part.key, static_cast<std::uint64_t>(part.bytes));
  json.set("total", static_cast<std::uint64_t>(plan.total));
  json.set("available", static_cast<std::uint64_t>(available));
  return json;
}

[[noreturn]] void refuse(const std::string& what, const MemoryPlan& plan, std::size_t available) {
  throw RequestError("OutOfMemory", what + " " + describe(plan, available), {{"memory", figures(plan, available)}});
}

int whole_pieces(int rows) {
  const std::int64_t pieces = (std::int64_t{std::max(rows, 1)} + piece_rows - 1) / piece_rows;
  return static_cast<int>(std::min<std::int64_t>(pieces * piece_rows, 1 << 30));
}

struct BatchSize {
  int rows = 0;   // of the largest mini-batch
  int chain = 0;  // tokens of the longest path from a root to a leaf
};

BatchSize size_of(const Batch& batch) {
  BatchSize size;
  std::vector<int> chains(static_cast<std::size_t>(batch.node_count()));
  int rows = 0;
  for (int n = 0; n < batch.node_count(); ++n) {
    const BatchNode node = batch.node(n);
    const bool first = n == 0 || node.mini_batch != batch.node(n - 1).mini_batch;
    rows = (first ? 0 : rows) + node.length;
    chains[n] = node.length + (node.parent < 0 ? 0 : chains[node.parent]);
    size.rows = std::max(size.rows, rows);
    size.chain = std::max(size.chain, chains[n]);
  }
  return size;
}

// Host memory for reference weights when a GPU computes: the host does not pack them into panels.
std::size_t host_reference_bytes(const Architecture& architecture, const MemoryPlan& plan) {
  return ParameterLayout(architecture).total * sizeof(float) + plan.rope;
}

// When a GPU computes, the host still holds the arrays of the held state and of the next one, and packs the weights to check updates.
void require_host_memory(const MemoryRequest& request) {
  const MemoryPlan all = plan_memory(request);
  MemoryPlan plan;
  plan.weights = all.weights;
  plan.panels = all.panels;
  plan.moments = all.moments;
  plan.next_policy = all.next_policy;
  plan.rope = all.rope;
  if (request.reference) plan.reference = host_reference_bytes(request.architecture, all);
  for (const MemoryPart& part : parts(plan)) plan.total += part.bytes;
  const std::size_t most = MemoryUse{resident_bytes(), available_memory()}.most();
  if (plan.total > most) refuse("training this model beside a GPU, in the host's memory,", plan, most);
}

}  // namespace

MemoryRequest MemoryGuard::request_for(const Architecture& architecture, const std::optional<LoraSettings>& lora,
                                       MomentFormat moments, bool reference) const {
  MemoryRequest request;
  request.architecture = architecture;
  request.lora = lora;
  request.moments = moments;
  request.reference = reference;
  request.threads = options_.threads;
  request.kv_cache_bytes = Scheduler::most_cache_bytes(architecture, options_.cache_bytes, backend_->block_bytes(architecture));
  return request;
}

// The choices for pass size and recomputation, the fastest first: several passes compute a part of a mini-batch twice,
// and recomputation computes nearly all of it twice.
std::vector<ForestPassSettings> MemoryGuard::choices(int most_rows) const {
  std::vector<int> sizes;
  if (options_.pass_rows) {
    sizes.push_back(*options_.pass_rows);
  } else {
    sizes.push_back(std::min(whole_pieces(most_rows), most_pass_rows));
    for (int rows = most_pass_rows / 2; rows >= piece_rows; rows /= 2) {
      if (rows < sizes.front()) sizes.push_back(rows);
    }
  }
  std::vector<ForestPassSettings> all;
  for (const bool recompute : {false, true}) {
    if (options_.recompute && *options_.recompute != recompute) continue;
    for (const int rows : sizes) all.push_back({rows, recompute});
  }
  return all;
}

Json MemoryGuard::plan_load(const Architecture& architecture, const std::optional<LoraSettings>& lora, MomentFormat moments,
                            bool reference, bool shared) const {
  const MemoryUse memory = backend_->memory();
  const std::size_t most = memory.most();
  MemoryRequest request = request_for(architecture, lora, moments, reference);
  MemoryPlan plan;
  bool fits = false;
  for (const ForestPassSettings& passes : choices(planned_rows)) {
    request.pass_rows = passes.pass_rows;
    request.recompute = passes.recompute;
    request.batch_rows = std::min(passes.pass_rows, planned_rows);
    request.longest_chain = std::min(architecture.max_position_embeddings, request.batch_rows);
    plan = backend_->plan(request);
    fits = plan.total <= most;
    if (fits) break;
  }
  if (!fits) refuse("training this model", plan, most);
  if (backend_->device().kind != "cpu") require_host_memory(request);
  // The current model stays in the host's memory until the new one is complete.
  const std::size_t fresh = (shared ? 0 : plan.weights + plan.panels + plan.rope) + plan.moments, available = available_memory();
  if (fresh > available) refuse("loading this model while the current model is still in memory", plan, available);
  return figures(plan, most);
}

void MemoryGuard::plan_reference(const Policy& policy) const {
  MemoryRequest request = request_for(policy.architecture(), {}, policy.moments().format, true);
  request.batch_rows = request.pass_rows = piece_rows;
  const MemoryPlan plan = backend_->plan(request);
  const std::size_t available = backend_->memory().available;
  if (plan.reference > available) refuse("holding reference weights in addition to this model", plan, available);
  if (backend_->device().kind == "cpu") return;
  MemoryPlan host;
  host.reference = host.total = host_reference_bytes(policy.architecture(), plan);
  const std::size_t rest = available_memory();
  if (host.reference > rest) refuse("holding reference weights beside a GPU, in the host's memory,", host, rest);
}

ForestPassSettings MemoryGuard::plan_update(const Policy& policy, const Batch& batch, bool reference) const {
  const BatchSize size = size_of(batch);
  const std::size_t most = backend_->memory().most();
  std::optional<LoraSettings> lora;
  if (policy.adapters() != nullptr) lora = policy.adapters()->settings();
  MemoryRequest request = request_for(policy.architecture(), lora, policy.moments().format, reference);
  request.batch_rows = size.rows;
  request.longest_chain = size.chain;
  const auto plan_of = [&](const ForestPassSettings& passes) {
    request.pass_rows = passes.pass_rows;
    request.recompute = passes.recompute;
    return backend_->plan(request);
  };
  const std::vector<ForestPassSettings> all = choices(size.rows);
  // Prefers a choice that leaves some memory to other processes.
  for (const ForestPassSettings& passes : all) {
    if (plan_of(passes).total <= most / 4 * 3) return passes;
  }
  const MemoryPlan least = plan_of(all.back());
  if (least.total <= most) return all.back();
  throw BatchError("the largest mini-batch has " + std::to_string(size.rows) + " rows, its longest sequence " +
                   std::to_string(size.chain) + " tokens: training it " + describe(least, most) +
                   "; use more mini-batches or shorter sequences to need less");
}

}  // namespace longhaul
