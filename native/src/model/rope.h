// The rotary embedding's table.
#pragma once

#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/exact_math.h"
#include "base/thread_pool.h"
#include "model/architecture.h"

namespace longhaul {

/// YaRN's factor for cos and sin if the configuration does not give one: transformers' get_mscale.
inline double yarn_magnitude(double factor, double scale = 1) { return factor > 1 ? 0.1 * scale * exact::log(factor) + 1 : 1; }

/// Between these pairs [low, high], YaRN blends from the model's own frequencies to frequencies divided by `factor`. The two pairs turn
/// beta_fast and beta_slow times over the original context, rounded outwards as transformers does.
std::pair<double, double> yarn_range(const Architecture& architecture);

/// Radians per position of each pair (i, i + head_dim / 2) of a head: [head_dim / 2]. θ^(−2i / head_dim); with YaRN, blended with that
/// value divided by `factor`. Computed in double, rounded to fp32.
std::vector<float> rotary_frequencies(const Architecture& architecture);

/// cos and sin for every position: [max_position_embeddings, head_dim / 2] each, with YaRN's frequencies and factor. Angles (fp32 products
/// position · frequency, as in transformers) go through exact::sine_cosine.
class RopeTable {
 public:
  explicit RopeTable(const Architecture& architecture, ThreadPool* pool = nullptr);

  const float* cos() const { return cos_.data(); }
  const float* sin() const { return sin_.data(); }

 private:
  AlignedBuffer cos_{BufferMemory::mapped}, sin_{BufferMemory::mapped};
};

}  // namespace longhaul
