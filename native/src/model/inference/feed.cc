#include "model/inference/feed.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace longhaul {

namespace {

void check(const Feed& feed, size_t index, const Architecture& architecture, int block_capacity) {
  const auto refuse = [index](const std::string& what) {
    throw std::invalid_argument("feed " + std::to_string(index) + ": " + what);
  };
  const size_t end = size_t(std::max(feed.position, 0)) + feed.tokens.size();
  if (feed.tokens.empty()) refuse("has no tokens");
  if (feed.position < 0) refuse("starts at position " + std::to_string(feed.position));
  if (end > size_t(architecture.max_position_embeddings))
    refuse("ends at position " + std::to_string(end) + ", past max_position_embeddings, " +
           std::to_string(architecture.max_position_embeddings));
  if (feed.blocks.size() * block_positions < end)
    refuse(std::to_string(feed.blocks.size()) + " blocks do not cover " + std::to_string(end) + " positions");
  for (const int32_t token : feed.tokens)
    if (token < 0 || token >= architecture.vocab_size)
      refuse("token " + std::to_string(token) + " is not in the vocabulary of " + std::to_string(architecture.vocab_size));
  const size_t used = (end + block_positions - 1) / block_positions;
  for (const int32_t block : feed.blocks.first(used))
    if (block < 0 || block >= block_capacity) refuse("block " + std::to_string(block) + " does not exist");
}

}  // namespace

BlockCache::BlockCache(int block_capacity) : block_capacity_(block_capacity) {
  if (block_capacity < 1)
    throw std::invalid_argument("KV cache: block_capacity is " + std::to_string(block_capacity) + "; it must be at least 1");
}

void validate(std::span<const Feed> feeds, const Architecture& architecture, int block_capacity) {
  for (size_t i = 0; i < feeds.size(); ++i) check(feeds[i], i, architecture, block_capacity);
}

}  // namespace longhaul
