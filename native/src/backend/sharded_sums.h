// The order in which gradients of matrices are added up in bf16, so that passes of any size, and later several devices, give the same bits.
#pragma once

#include <map>

#include "backend/cpu_buffer.h"
#include "base/thread_pool.h"
#include "model/parameters.h"
#include "pass/plan/pass_plan.h"

namespace longhaul {

/// What the rows of a sum (PieceRange) give is one chain; sums are added to their shard, and shards to the gradient, in the order in which the
/// backward pass reaches them.
class ShardedSums {
 public:
  explicit ShardedSums(ThreadPool& pool) : pool_(pool) {}

  /// Forgets what an unfinished pass has left.
  void begin() { places_.clear(); }

  /// Where a piece's chain for the gradient of `range` goes on. Ended shards are added to `gradients` [values].
  float* at(const ParameterRange& range, const PieceRange& piece, float* gradients, size_t values);

  /// Adds what has been given since `begin` and is not in `gradients` yet.
  void finish(float* gradients);

 private:
  struct Place {
    ParameterRange range;
    int sum, shard;
  };
  void add(float* to, CpuBuffer<float>& from, const ParameterRange& range);

  ThreadPool& pool_;
  std::map<size_t, Place> places_;  // by the range's offset
  CpuBuffer<float> chain_, shard_;
};

}  // namespace longhaul
