#include "cuda/host/device_queries.h"

#include <numeric>

namespace longhaul::cuda {

void DeviceQueries::put(std::span<const QuerySpan> spans, std::span<const int32_t> query_rows, std::span<const int32_t> query_places, int group,
                        Stream stream) {
  count = int(query_rows.size());
  if (count == 0) return;
  const std::vector<AttentionTile> cut = attention_tiles(spans, group, tile_rows);
  tiles = int(cut.size());
  tile_room.put(cut, stream);
  rows.put(query_rows, stream);
  places.put(query_places, stream);
}

void DeviceFeedArrays::put(const FeedRows& rows, int group, Stream stream) {
  std::vector<int32_t> store_places, blocks, counting(rows.tokens.size());
  std::iota(counting.begin(), counting.end(), 0);
  std::vector<QuerySpan> spans;
  int listed = 0;  // blocks of the span's past
  for (int row = 0; row < rows.size(); ++row) {
    const int32_t* table = rows.block_tables[size_t(row)];
    const int position = rows.positions[size_t(row)];
    if (row == 0 || table != rows.block_tables[size_t(row) - 1] || position < rows.positions[size_t(row) - 1]) {
      spans.push_back({row, 0, int(blocks.size())});
      listed = 0;
    }
    ++spans.back().queries;
    while (listed <= position / block_positions) blocks.push_back(table[listed++]);
    store_places.push_back(table[position / block_positions] * block_positions + position % block_positions);
  }
  stores.put(store_places, stream);
  entries.put(blocks, stream);
  // Rows that share a past come from prefill; a decoding feed has one.
  queries.tile_rows = rows.tokens.size() > 4 * spans.size() ? many_tile_rows : few_tile_rows;
  queries.put(spans, counting, rows.positions, group, stream);
}

}  // namespace longhaul::cuda
