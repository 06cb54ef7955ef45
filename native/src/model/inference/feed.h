// What a forward pass over cached blocks is given, whatever computes it: tokens to append, and the blocks of those before them.
#pragma once

#include <cstdint>
#include <span>

#include "model/architecture.h"

namespace longhaul {

/// Positions in a block of the KV cache. Block b of a sequence's table holds positions [32·b, 32·b + 32).
inline constexpr int block_positions = 32;

/// Most rows of all feeds of a call of `extend`.
inline constexpr int most_feed_rows = 2048;

/// Keys and values of blocks, each with all layers of its positions, in the memory of what computes. The scheduler decides which sequence
/// owns which block.
class BlockCache {
 public:
  /// Throws std::invalid_argument if there would be no block.
  explicit BlockCache(int block_capacity);
  virtual ~BlockCache() = default;
  int block_capacity() const { return block_capacity_; }
  /// Copies all layers of a block (copy on write for a partly filled shared block).
  virtual void copy_block(int from, int to) = 0;

 private:
  const int block_capacity_;
};

/// Tokens to append to the tokens that the blocks already hold.
struct Feed {
  std::span<const int32_t> tokens;
  /// Position of tokens[0]. The positions before it are in the cache, or an earlier feed of the same call computes them.
  int position = 0;
  /// Block table that covers position + tokens.size() positions.
  std::span<const int32_t> blocks;
  /// Whether to compute the logits of the last token.
  bool want_logits = false;
};

/// Throws std::invalid_argument on a token, position or block out of range.
void validate(std::span<const Feed> feeds, const Architecture& architecture, int block_capacity);

}  // namespace longhaul
