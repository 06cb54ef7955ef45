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

#include "backend/numerics.h"
#include "base/process_memory.h"
#include "base/thread_pool.h"
#include "model/inference/feed.h"
#include "model/inference/sample.h"
#include "model/policy.h"
#include "pass/plan/memory_plan.h"
#include "pass/training.h"

namespace longhaul {

/// What a backend computes on.
struct DeviceInfo {
  std::string kind;    // "cpu", "cuda"; "emulated" in tests
  std::string name;    // "NVIDIA H100 80GB HBM3"; empty for a CPU
  std::size_t memory_bytes = 0;  // of a GPU; 0 for a CPU
};

/// BLAKE3 of one leaf of a state (state/digest/digest.h).
using LeafDigest = std::array<std::uint8_t, 32>;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const Numerics& numerics() const = 0;
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
