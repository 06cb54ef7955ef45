// The state digest: a tree hash over weights, moments and the optimizer's count (docs/engine-protocol.md, "The state").
// defines: StateLeaves, leaves_of, hash_leaves, state_digest, architecture_json, architecture_from_json
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "state/sha256.h"
#include "wire/json.h"

namespace longhaul {

// The tree's leaves: pieces of 1 MiB of all tensors' bytes, one after another in their order.
class StateLeaves {
 public:
  explicit StateLeaves(std::vector<std::size_t> tensor_bytes);
  std::size_t count() const;

  // Calls visit(tensor, first byte, bytes) for each part of a leaf, in order.
  template <class Visit>
  void visit(std::size_t leaf, Visit&& visit) const {
    std::size_t at = leaf * kBytes;
    const std::size_t end = std::min(total_, at + kBytes);
    std::size_t tensor = tensor_at(at);
    while (at < end) {
      const std::size_t from = at - starts_[tensor];
      const std::size_t size = std::min(end - at, sizes_[tensor] - from);
      if (size > 0) visit(tensor, from, size);
      at += size;
      ++tensor;
    }
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::size_t tensor_at(std::size_t byte) const;

  std::vector<std::size_t> sizes_, starts_;
  std::size_t total_ = 0;
};

// Of the policy's tensors.
StateLeaves leaves_of(const Policy& policy);

// Of all leaves, two at a time on every thread of the pool. `fill`, where given, puts a leaf's bytes in place before they are
// hashed: it is called for one leaf after another, in their order.
std::vector<Sha256Digest> hash_leaves(const Policy& policy, const StateLeaves& leaves, ThreadPool& pool,
                                      const std::function<void(std::size_t leaf)>& fill = nullptr);

// Lower-case hex.
std::string state_digest(const Policy& policy, ThreadPool& pool);

// The same from leaves that are hashed already.
std::string state_digest(const Policy& policy, std::span<const Sha256Digest> leaves);

Json architecture_json(const Architecture& architecture);

// Throws std::invalid_argument that names the key.
Architecture architecture_from_json(const Json& value);

}  // namespace longhaul
