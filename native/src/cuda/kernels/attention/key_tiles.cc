#include <algorithm>

#include "cuda/kernels/attention/attention_backward.h"

namespace longhaul::cuda {

KeyTiles key_tiles(std::span<const ForestSegment> segments, std::span<const int> order) {
  std::vector<std::vector<KeyReader>> readers_of(segments.size());
  for (const int index : order) {
    const ForestSegment& segment = segments[size_t(index)];
    if (segment.queries == 0) continue;
    for (int seen = index; seen >= 0; seen = segments[size_t(seen)].parent)
      readers_of[size_t(seen)].push_back({segment.first_query, segment.queries});
  }
  KeyTiles plan;
  for (size_t i = 0; i < segments.size(); ++i) {
    const int first_reader = int(plan.readers.size()), readers = int(readers_of[i].size());
    if (readers == 0) continue;
    plan.readers.insert(plan.readers.end(), readers_of[i].begin(), readers_of[i].end());
    const ForestSegment& segment = segments[i];
    for (int done = 0; done < segment.rows; done += block_positions)
      plan.tiles.push_back({segment.first_row + done, std::min(block_positions, segment.rows - done), segment.place + done,
                            first_reader, readers});
  }
  return plan;
}

}  // namespace longhaul::cuda
