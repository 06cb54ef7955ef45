// Says no before memory runs out: what a load and an update will take is planned, and held against what this process may
// have, before anything is allocated. Passes of a size that fits are chosen where the peer left that open; no size changes a bit.
// defines: MemoryGuard, resident_bytes
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "model/policy.h"
#include "train/batch.h"
#include "train/forest/forest_pass.h"
#include "train/memory_plan.h"
#include "wire/json.h"

namespace longhaul {

// Resident memory of this process, without pages that belong to files.
std::size_t resident_bytes();

struct MemoryOptions {
  int threads = 1;
  std::size_t cache_bytes = std::size_t{256} << 20;
  // Left open: as many as fit.
  std::optional<int> pass_rows;
  // Left open: only if nothing else fits.
  std::optional<bool> recompute;
};

class MemoryGuard {
 public:
  void configure(const MemoryOptions& options) { options_ = options; }
  const MemoryOptions& options() const { return options_; }

  // For sampling from such a model and training it. Returns the plan's parts, `total` and `available`. Throws RequestError("OutOfMemory")
  // with the same figures if it would not fit, or not beside the held state while it is loaded. `shared`: the weights are held already.
  Json plan_load(const Architecture& architecture, const std::optional<LoraSettings>& lora, MomentFormat moments,
                 bool reference, bool shared = false) const;

  // For one more model's weights beside all that is held. Throws as above.
  void plan_reference(const Policy& policy) const;

  // For training on this batch, which must be valid. Throws BatchError that names its rows and the figures if no pass fits.
  ForestPassSettings plan_update(const Policy& policy, const Batch& batch, bool reference) const;

 private:
  MemoryRequest request_for(const Architecture& architecture, const std::optional<LoraSettings>& lora, MomentFormat moments,
                            bool reference) const;
  std::vector<ForestPassSettings> choices(int most_rows) const;

  MemoryOptions options_;
};

}  // namespace longhaul
