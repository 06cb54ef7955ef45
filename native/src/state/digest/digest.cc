#include "state/digest/digest.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "state/digest/sha256.h"

namespace longhaul {
namespace {

std::vector<std::size_t> sizes_of(std::span<const TensorBytes<const std::byte>> tensors) {
  std::vector<std::size_t> sizes;
  for (const auto& tensor : tensors) sizes.push_back(tensor.bytes.size());
  return sizes;
}

std::string root_of(std::string_view schema, const Json& identity, std::span<const Blake3Digest> leaves) {
  Blake3 root;
  root.add(schema);
  root.add("\n");
  root.add(write_json(identity, KeyOrder::sorted));
  root.add("\n");
  root.add(leaves.data(), leaves.size_bytes());
  return to_hex(root.finish());
}

// Whether a whole leaf is zero. The moments of a model that was just loaded are all zeros, on pages that are not mapped yet: this check
// takes a tenth of the time that hashing them takes.
bool is_zero(std::span<const std::byte> leaf) {
  return leaf.front() == std::byte{0} && std::memcmp(leaf.data(), leaf.data() + 1, leaf.size() - 1) == 0;
}

const Blake3Digest& digest_of_zeros() {
  static const Blake3Digest digest = blake3(std::vector<std::byte>(StateLeaves::leaf_bytes));
  return digest;
}

}  // namespace

StateLeaves::StateLeaves(std::vector<std::size_t> tensor_bytes) : sizes_(std::move(tensor_bytes)) {
  for (const std::size_t size : sizes_) {
    starts_.push_back(total_);
    total_ += size;
  }
}

StateLeaves::StateLeaves(std::span<const TensorBytes<const std::byte>> tensors) : StateLeaves(sizes_of(tensors)) {}

std::size_t StateLeaves::count() const { return (total_ + leaf_bytes - 1) / leaf_bytes; }

std::size_t StateLeaves::tensor_at(std::size_t byte) const {
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), byte) - starts_.begin()) - 1;
}

std::vector<Blake3Digest> hash_leaves(std::span<const TensorBytes<const std::byte>> tensors, const StateLeaves& leaves,
                                      ThreadPool& pool, const std::function<void(std::size_t leaf)>& fill) {
  std::vector<Blake3Digest> digests(leaves.count());
  // Small tensors are scattered in memory. A leaf with several tensors is first copied into one piece, since BLAKE3 is fast on long pieces.
  pool.parallel_for(digests.size(), [&](std::size_t leaf) {
    if (fill) fill(leaf);
    std::size_t parts = 0;
    leaves.visit(leaf, [&](std::size_t, std::size_t, std::size_t) { ++parts; });
    if (parts == 1) {
      leaves.visit(leaf, [&](std::size_t tensor, std::size_t from, std::size_t part) {
        const auto bytes = tensors[tensor].bytes.subspan(from, part);
        digests[leaf] = part == StateLeaves::leaf_bytes && is_zero(bytes) ? digest_of_zeros() : blake3(bytes);
      });
      return;
    }
    static thread_local std::vector<std::byte> together;
    together.clear();
    together.reserve(StateLeaves::leaf_bytes);
    leaves.visit(leaf, [&](std::size_t tensor, std::size_t from, std::size_t part) {
      const auto bytes = tensors[tensor].bytes.subspan(from, part);
      together.insert(together.end(), bytes.begin(), bytes.end());
    });
    digests[leaf] = blake3(together);
  });
  return digests;
}

std::string state_digest(const Policy& policy, ThreadPool& pool, std::string_view base) {
  std::string hashed_base;
  if (policy.adapters() != nullptr && base.empty()) {
    hashed_base = weights_digest(policy.weights(), pool);
    base = hashed_base;
  }
  const auto tensors = state_tensors(policy);
  return state_digest(policy, hash_leaves(tensors, StateLeaves(tensors), pool), base);
}

StateDigest state_digest(const Policy& policy, Backend& backend, ThreadPool& pool, std::string_view base) {
  std::vector<std::span<const std::byte>> bytes;
  for (const auto& tensor : state_tensors(policy)) bytes.push_back(tensor.bytes);
  const std::vector<LeafDigest> leaves = backend.hash_leaves(policy, bytes);
  if (leaves.empty()) return {state_digest(policy, pool, base), false};
  if (policy.adapters() == nullptr || !base.empty()) return {state_digest(policy, leaves, base), true};
  return {state_digest(policy, leaves, weights_digest(policy.weights(), pool)), true};
}

std::string state_digest(const Policy& policy, std::span<const Blake3Digest> leaves, std::string_view base) {
  Json identity;
  identity.set("architecture", architecture_json(policy.architecture()));
  identity.set("optimizer_steps", policy.optimizer_steps);
  identity.set("moments", name(policy.moments().format));
  if (policy.adapters() != nullptr) {
    if (base.empty()) throw std::logic_error("the digest of a state with adapters needs the digest of its base weights");
    identity.set("lora", lora_json(policy.adapters()->settings()));
    identity.set("base", std::string(base));
  }
  return root_of("longhaul.state/2", identity, leaves);
}

std::string weights_digest(const Weights& weights, ThreadPool& pool) {
  const auto tensors = weight_tensors(weights);
  return weights_digest(weights.architecture(), hash_leaves(tensors, StateLeaves(tensors), pool));
}

std::string weights_digest(const Architecture& architecture, std::span<const Blake3Digest> leaves) {
  Json identity;
  identity.set("architecture", architecture_json(architecture));
  return root_of("longhaul.weights/1", identity, leaves);
}

}  // namespace longhaul
