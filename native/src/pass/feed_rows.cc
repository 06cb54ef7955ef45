#include "pass/feed_rows.h"

#include <algorithm>
#include <numeric>

namespace longhaul {

FeedRows::FeedRows(std::span<const Feed> feeds) {
  std::vector<int> order(feeds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::lexicographical_compare(feeds[a].blocks.begin(), feeds[a].blocks.end(), feeds[b].blocks.begin(), feeds[b].blocks.end());
  });
  std::vector<int32_t> last_row(feeds.size());
  for (const int f : order) {
    const Feed& feed = feeds[f];
    const int count = int(feed.tokens.size());
    tokens.insert(tokens.end(), feed.tokens.begin(), feed.tokens.end());
    for (int i = 0; i < count; ++i) positions.push_back(feed.position + i);
    block_tables.insert(block_tables.end(), size_t(count), feed.blocks.data());
    last_row[f] = size() - 1;
    longest = std::max(longest, feed.position + count);
  }
  for (size_t f = 0; f < feeds.size(); ++f)
    if (feeds[f].want_logits) wanted.push_back(last_row[f]);
}

std::vector<int32_t> FeedRows::keep_wanted() {
  std::vector<int32_t> kept = wanted;
  std::sort(kept.begin(), kept.end());
  const auto keep = [&kept](auto& all) {
    for (size_t i = 0; i < kept.size(); ++i) all[i] = all[size_t(kept[i])];
    all.resize(kept.size());
  };
  keep(tokens);
  keep(positions);
  keep(block_tables);
  for (int32_t& row : wanted) row = int32_t(std::lower_bound(kept.begin(), kept.end(), row) - kept.begin());
  return kept;
}

}  // namespace longhaul
