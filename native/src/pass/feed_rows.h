// The rows of a call of `extend`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/inference/feed.h"

namespace longhaul {

/// Feeds with a common prefix are neighbours, so that attention can read the prefix once for all of them.
struct FeedRows {
  std::vector<int32_t> tokens, positions;
  std::vector<const int32_t*> block_tables;
  /// The rows with wanted logits, in order of the feeds.
  std::vector<int32_t> wanted;
  int longest = 0;

  FeedRows() = default;
  explicit FeedRows(std::span<const Feed> feeds);

  int size() const { return int(tokens.size()); }
  /// Keeps only the rows with wanted logits. Returns where they were.
  std::vector<int32_t> keep_wanted();
};

}  // namespace longhaul
