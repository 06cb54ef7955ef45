// The rotary embedding's table.
#pragma once

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "model/architecture.h"

namespace longhaul {

/// cos and sin for every position: [max_position_embeddings, head_dim / 2] each, YaRN's frequencies and factor included.
/// Frequencies are computed in double and rounded to fp32; angles (fp32 products) go through exact::sine_cosine.
class RopeTable {
 public:
  explicit RopeTable(const Architecture& architecture, ThreadPool* pool = nullptr);

  const float* cos() const { return cos_.data(); }
  const float* sin() const { return sin_.data(); }

 private:
  AlignedBuffer cos_, sin_;
};

}  // namespace longhaul
