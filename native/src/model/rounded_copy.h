// A copy of values for passes in bf16.
#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "base/split_master.h"
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace longhaul {

/// Holds the upper halves (base/split_master.h) of a T's `values()`. Copies share it until one of them makes it again.
template <class T>
class RoundedCopy {
 public:
  void changed() { current_ = false; }

  /// Makes the copy unless it is current. Then T's panels are packed.
  void make(const T& original, ThreadPool* pool) {
    if (current_) return;
    if (!copy_ || copy_.use_count() > 1) {
      copy_ = std::make_shared<T>(original);
      copy_->drop_rounded();
    }
    const std::span<const float> from = original.values();
    const std::span<float> to = copy_->values();
    constexpr size_t block = size_t{1} << 18;
    const auto round = [&](size_t b) {
      for (size_t i = b * block; i < std::min((b + 1) * block, from.size()); ++i) to[i] = bf16_weight(split_weight(from[i]).high);
    };
    const size_t blocks = (from.size() + block - 1) / block;
    if (pool) {
      pool->parallel_for(blocks, round);
    } else {
      for (size_t b = 0; b < blocks; ++b) round(b);
    }
    copy_->changed();
    copy_->pack_forward(pool, ops::Arithmetic::fp32);
    current_ = true;
  }

  const T& get() const {
    if (!current_) throw std::logic_error("weights: they are not rounded for bf16");
    return *copy_;
  }

 private:
  std::shared_ptr<T> copy_;
  bool current_ = false;
};

}  // namespace longhaul
