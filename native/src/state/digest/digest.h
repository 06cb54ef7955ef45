// The digests of a state and of weights: tree hashes with BLAKE3 (docs/engine-protocol.md, "The state").
// defines: StateLeaves, hash_leaves, state_digest, weights_digest
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "model/policy.h"
#include "state/digest/blake3.h"
#include "state/identity.h"
#include "state/state_tensors.h"

namespace longhaul {

// The tree's leaves: the bytes of all tensors, in order, cut into pieces of 1 MiB.
class StateLeaves {
 public:
  explicit StateLeaves(std::vector<std::size_t> tensor_bytes);
  // Leaves of these tensors.
  explicit StateLeaves(std::span<const TensorBytes<const std::byte>> tensors);
  std::size_t count() const;
  std::size_t total_bytes() const { return total_; }

  // Calls visit(tensor, first byte, bytes) for each part of a leaf, in order.
  template <class Visit>
  void visit(std::size_t leaf, Visit&& visit) const {
    std::size_t at = leaf * leaf_bytes;
    const std::size_t end = std::min(total_, at + leaf_bytes);
    std::size_t tensor = tensor_at(at);
    while (at < end) {
      const std::size_t from = at - starts_[tensor];
      const std::size_t size = std::min(end - at, sizes_[tensor] - from);
      if (size > 0) visit(tensor, from, size);
      at += size;
      ++tensor;
    }
  }

  static constexpr std::size_t leaf_bytes = std::size_t{1} << 20;

 private:
  std::size_t tensor_at(std::size_t byte) const;

  std::vector<std::size_t> sizes_, starts_;
  std::size_t total_ = 0;
};

// Digests of all leaves, on all threads of the pool. If given, `fill` writes a leaf's bytes before they are hashed, on the thread that
// hashes them; leaves are started in order.
std::vector<Blake3Digest> hash_leaves(std::span<const TensorBytes<const std::byte>> tensors, const StateLeaves& leaves,
                                      ThreadPool& pool, const std::function<void(std::size_t leaf)>& fill = nullptr);

// Lower-case hex. `base` is the digest of the weights under the adapters; if it is empty, it is computed, provided that there are adapters.
std::string state_digest(const Policy& policy, ThreadPool& pool, std::string_view base = {});

struct StateDigest {
  std::string digest;
  bool by_device;
};

// The same of a policy that the backend holds or has just trained, from leaves that its device hashes if it can.
StateDigest state_digest(const Policy& policy, Backend& backend, ThreadPool& pool, std::string_view base = {});

// Computes the state's digest from leaves that are already hashed. With adapters, `base` must be given.
std::string state_digest(const Policy& policy, std::span<const Blake3Digest> leaves, std::string_view base);

// Digest of the model's weights without adapters.
std::string weights_digest(const Weights& weights, ThreadPool& pool);

// Computes the weights' digest from leaves that are already hashed.
std::string weights_digest(const Architecture& architecture, std::span<const Blake3Digest> leaves);

}  // namespace longhaul
