#include "state/digest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "state/sha256.h"

namespace longhaul {
namespace {

int whole(const Json& value, const char* key) {
  const Json* member = value.find(key);
  const double* number = member == nullptr ? nullptr : member->number();
  if (number == nullptr || *number != std::floor(*number) || *number < 0 || *number > std::numeric_limits<int>::max()) {
    throw std::invalid_argument(std::string("architecture.") + key + " must be a whole number");
  }
  return static_cast<int>(*number);
}

double real(const Json& value, const char* key) {
  const Json* member = value.find(key);
  const double* number = member == nullptr ? nullptr : member->number();
  if (number == nullptr) throw std::invalid_argument(std::string("architecture.") + key + " must be a number");
  return *number;
}

using Parts = std::vector<std::span<const std::byte>>;

std::pair<Sha256Digest, Sha256Digest> hash_both(const Parts& one, const Parts& other) {
  struct Message {
    const Parts& parts;
    Sha256 hash{};
    std::size_t part = 0, at = 0;

    bool has_more() const { return part < parts.size(); }
    std::size_t left() const { return parts[part].size() - at; }
    const std::byte* next(std::size_t size) {
      const std::byte* bytes = parts[part].data() + at;
      at += size;
      if (at == parts[part].size()) part += 1, at = 0;
      return bytes;
    }
  };
  Message a{one}, b{other};
  while (a.has_more() && b.has_more()) {
    const std::size_t size = std::min(a.left(), b.left());
    Sha256::add_to_both(a.hash, a.next(size), b.hash, b.next(size), size);
  }
  for (Message* rest : {&a, &b}) {
    while (rest->has_more()) {
      const std::size_t size = rest->left();
      rest->hash.add(rest->next(size), size);
    }
  }
  return {a.hash.finish(), b.hash.finish()};
}

}  // namespace

StateLeaves::StateLeaves(std::vector<std::size_t> tensor_bytes) : sizes_(std::move(tensor_bytes)) {
  for (const std::size_t size : sizes_) {
    starts_.push_back(total_);
    total_ += size;
  }
}

std::size_t StateLeaves::count() const { return (total_ + kBytes - 1) / kBytes; }

std::size_t StateLeaves::tensor_at(std::size_t byte) const {
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), byte) - starts_.begin()) - 1;
}

StateLeaves leaves_of(const Policy& policy) {
  std::vector<std::size_t> sizes;
  for (const auto& tensor : policy.tensors()) sizes.push_back(tensor.values.size_bytes());
  return StateLeaves(std::move(sizes));
}

std::vector<Sha256Digest> hash_leaves(const Policy& policy, const StateLeaves& leaves, ThreadPool& pool,
                                      const std::function<void(std::size_t leaf)>& fill) {
  const auto tensors = policy.tensors();
  const auto parts_of = [&](std::size_t leaf) {
    Parts parts;
    if (leaf >= leaves.count()) return parts;
    leaves.visit(leaf, [&](std::size_t tensor, std::size_t from, std::size_t size) {
      parts.push_back(std::as_bytes(tensors[tensor].values).subspan(from, size));
    });
    return parts;
  };
  std::vector<Sha256Digest> digests(leaves.count());
  std::mutex filling;
  std::size_t next = 0;
  // Leaves in order, whoever takes them: the kernel reads ahead for one who reads a file from its beginning to its end.
  const auto take = [&] {
    std::lock_guard lock(filling);
    const std::size_t leaf = next;
    next += 2;
    if (fill) {
      for (std::size_t one = leaf; one < std::min(next, digests.size()); ++one) fill(one);
    }
    return leaf;
  };
  pool.parallel_for((digests.size() + 1) / 2, [&](std::size_t) {
    const std::size_t leaf = take();
    const auto [one, other] = hash_both(parts_of(leaf), parts_of(leaf + 1));
    digests[leaf] = one;
    if (leaf + 1 < digests.size()) digests[leaf + 1] = other;
  });
  return digests;
}

std::string state_digest(const Policy& policy, ThreadPool& pool) {
  return state_digest(policy, hash_leaves(policy, leaves_of(policy), pool));
}

std::string state_digest(const Policy& policy, std::span<const Sha256Digest> leaves) {
  Json identity;
  identity.set("architecture", architecture_json(policy.architecture()));
  identity.set("optimizer_steps", policy.optimizer_steps);
  Sha256 root;
  root.add("longhaul.state/1\n");
  root.add(write_json(identity, KeyOrder::sorted));
  root.add("\n");
  for (const Sha256Digest& leaf : leaves) root.add(leaf.data(), leaf.size());
  return to_hex(root.finish());
}

Json architecture_json(const Architecture& architecture) {
  Json json;
  json.set("vocab_size", architecture.vocab_size);
  json.set("hidden_size", architecture.hidden_size);
  json.set("intermediate_size", architecture.intermediate_size);
  json.set("num_hidden_layers", architecture.num_hidden_layers);
  json.set("num_attention_heads", architecture.num_attention_heads);
  json.set("num_key_value_heads", architecture.num_key_value_heads);
  json.set("head_dim", architecture.head_dim);
  json.set("rms_norm_eps", architecture.rms_norm_eps);
  json.set("rope_theta", architecture.rope_theta);
  json.set("tie_word_embeddings", architecture.tie_word_embeddings);
  json.set("max_position_embeddings", architecture.max_position_embeddings);
  return json;
}

Architecture architecture_from_json(const Json& value) {
  if (value.object() == nullptr) throw std::invalid_argument("architecture must be an object");
  Architecture architecture;
  architecture.vocab_size = whole(value, "vocab_size");
  architecture.hidden_size = whole(value, "hidden_size");
  architecture.intermediate_size = whole(value, "intermediate_size");
  architecture.num_hidden_layers = whole(value, "num_hidden_layers");
  architecture.num_attention_heads = whole(value, "num_attention_heads");
  architecture.num_key_value_heads = whole(value, "num_key_value_heads");
  architecture.head_dim = whole(value, "head_dim");
  architecture.rms_norm_eps = real(value, "rms_norm_eps");
  architecture.rope_theta = real(value, "rope_theta");
  const Json* tied = value.find("tie_word_embeddings");
  if (tied == nullptr || tied->boolean() == nullptr) {
    throw std::invalid_argument("architecture.tie_word_embeddings must be true or false");
  }
  architecture.tie_word_embeddings = *tied->boolean();
  architecture.max_position_embeddings = whole(value, "max_position_embeddings");
  validate(architecture);
  return architecture;
}

}  // namespace longhaul
