// Where a policy is computed: the one seam between the engine and a device. A call is a whole pass, never a single operation: a CPU shares
// out a pass among threads, tile by tile while a tile is in its caches; a GPU launches kernels over all rows. What is planned (rows, blocks,
// segments, orders of sums, losses, schedules) is the host's and written once. Two backends with the same numerics give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/process_memory.h"
#include "base/thread_pool.h"
#include "model/inference/feed.h"
#include "model/inference/sample.h"
#include "model/policy.h"
#include "train/forest/forest.h"
#include "train/forest/pass_settings.h"
#include "train/memory_plan.h"
#include "train/optimizer.h"

namespace longhaul {

/// What a backend computes on.
struct DeviceInfo {
  std::string kind;    // "cpu", "cuda"; "emulated" in tests
  std::string name;    // "NVIDIA H100 80GB HBM3"; empty for a CPU
  std::size_t memory_bytes = 0;  // of a GPU; 0 for a CPU
};

/// Raise it by hand when the committed golden digest changes; a test checks this.
inline constexpr int numerics_version = 2;

/// Equal numerics, equal bits, whatever the device (R18). "cpu" names fp32 in the engine's order of sums.
struct Numerics {
  std::string backend;
  int version = 0;
};

/// BLAKE3 of one leaf of a state (state/digest/digest.h).
using LeafDigest = std::array<std::uint8_t, 32>;

/// Forward and backward passes over forests, and the steps that follow, in memory that is kept between calls. Gradients stay where they were
/// computed. An update calls `prepare`; `begin` and `logprobs` for log-probs that must not see its steps; for each mini-batch `begin`,
/// `gradient`, `gradient_norm` and `step`; then `collect`, or `give_up`.
class Training {
 public:
  virtual ~Training() = default;

  /// `most_rows`: of the largest mini-batch. Memory of earlier updates is kept, unless the settings allow less.
  virtual void prepare(const ForestPassSettings& settings, int most_rows) = 0;

  /// Sets the mini-batch. `target_rows` may be in any order and repeat. The arguments must outlive the calls that follow. `advanced` and
  /// `passed` are called as pass_settings.h says.
  virtual void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
                     std::span<const int32_t> target_tokens, float temperature, OnAdvance advanced, OnAdvance passed) = 0;

  /// log softmax(logits / temperature) of each target's token.
  virtual void logprobs(std::span<float> out) = 0;

  /// Has a part of the next gradient, which `choice` selects, computed on the host too; if the device's bits differ, `gradient` throws
  /// WrongValue (device_error.h). A CPU has nothing to compare with. Called after `begin`.
  virtual void check_gradient(std::uint64_t choice) = 0;

  /// Computes log-probs and entropies; then calls `derive` once, when all are known; then sets the gradient of what the policy trains.
  virtual void gradient(const Derive& derive, bool trains_entropy) = 0;

  /// Of the last gradient: see `gradient_norm` in train/optimizer.h.
  virtual double gradient_norm() = 0;

  /// One optimizer step with the last gradient: see `optimizer_step` in train/optimizer.h. A device steps where its arrays lie; then the
  /// host's arrays of `next` are of no account until `collect`.
  virtual void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                    const OptimizerSettings& settings) = 0;

  /// Brings the host's arrays of `next` up to date, for files, exports and checks.
  virtual void collect(Policy& next) = 0;

  /// Forgets the steps since `prepare`: the update is not applied.
  virtual void give_up() noexcept = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Numerics numerics() const = 0;
  virtual DeviceInfo device() const = 0;

  /// What this process has taken, and may still take, of the memory that this backend computes in.
  virtual MemoryUse memory() const = 0;
  /// Throws std::invalid_argument for a model that this backend cannot compute.
  virtual MemoryPlan plan(const MemoryRequest& request) const = 0;
  /// Bytes of one block of the KV cache.
  virtual std::size_t block_bytes(const Architecture& architecture) const = 0;

  /// Brings what a policy needs to where it is computed; then its passes may begin. Its arrays may not change while it is held.
  virtual void hold(std::shared_ptr<const Policy> policy) = 0;
  /// The same for the reference weights of a KL term; null: none.
  virtual void hold_reference(std::shared_ptr<const Weights> reference) = 0;

  /// On a CPU the capacity is only address space: a block takes memory when it is first written.
  virtual std::unique_ptr<BlockCache> make_cache(const Architecture& architecture, int block_capacity) = 0;

  /// Writes keys and values of all feeds, and draws a token behind each feed that wants logits: draws, drawn [such feeds], in feed order.
  /// Only one feed of a call may write a block; later feeds of the call may read it. A row's bits depend on its own tokens alone. Throws
  /// std::invalid_argument before anything is written.
  virtual void extend(const Policy& policy, BlockCache& cache, std::span<const Feed> feeds, std::span<const DrawRequest> draws,
                      std::span<Drawn> drawn) = 0;

  virtual std::unique_ptr<Training> make_training() = 0;

  /// The leaves of the state of a policy that is held or that an update has just collected, hashed where its values lie: less work than to
  /// read what was copied to the host. `tensors`: its bytes in the host's arrays, in order. Empty if that is the host's work.
  virtual std::vector<LeafDigest> hash_leaves(const Policy& policy, std::span<const std::span<const std::byte>> tensors) = 0;
};

/// Makes a process's backend; the pool outlives it. Throws std::runtime_error if the device cannot be used.
using MakeBackend = std::unique_ptr<Backend> (*)(ThreadPool& pool);

}  // namespace longhaul
