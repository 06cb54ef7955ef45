#include "backend/sharded_sums.h"

#include <algorithm>
#include <cstring>

#include "ops/ops.h"

namespace longhaul {

namespace {

constexpr size_t block = size_t{1} << 16;

}  // namespace

/// to += from, which becomes 0.
void ShardedSums::add(float* to, CpuBuffer<float>& from, const ParameterRange& range) {
  pool_.parallel_for((range.size() + block - 1) / block, [&](size_t b) {
    const size_t first = range.offset + b * block, count = std::min(block, range.size() - b * block);
    ops::table().add(to + first, from.data() + first, count);
    std::memset(from.data() + first, 0, count * sizeof(float));
  });
}

float* ShardedSums::at(const ParameterRange& range, const PieceRange& piece, float* gradients, size_t values) {
  const auto [found, is_new] = places_.try_emplace(range.offset, Place{range, piece.sum, piece.shard});
  Place& place = found->second;
  if (is_new) {
    for (CpuBuffer<float>* sums : {&chain_, &shard_}) std::memset(sums->room(values) + range.offset, 0, range.size() * sizeof(float));
  } else if (place.sum != piece.sum) {
    add(shard_.data(), chain_, place.range);
    if (place.shard != piece.shard) add(gradients, shard_, place.range);
    place = {range, piece.sum, piece.shard};
  }
  return chain_.data() + range.offset;
}

void ShardedSums::finish(float* gradients) {
  for (const auto& [offset, place] : places_) {
    add(shard_.data(), chain_, place.range);
    add(gradients, shard_, place.range);
  }
  places_.clear();
}

}  // namespace longhaul
