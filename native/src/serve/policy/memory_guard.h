// Refuses work before memory runs out. The memory that a load or an update will take is planned, and compared with the memory that this
// process may use, before anything is allocated. If the peer gives no pass size, one that fits is chosen; the size does not change a bit of
// the results.
// defines: MemoryGuard
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "train/batch.h"
#include "wire/json.h"

namespace longhaul {

struct MemoryOptions {
  int threads = 1;
  std::size_t cache_bytes = std::size_t{256} << 20;
  // If empty: as many as fit.
  std::optional<int> pass_rows;
  // If empty: only if nothing else fits.
  std::optional<bool> recompute;
};

class MemoryGuard {
 public:
  // `backend` must outlive the calls that follow: its memory is planned.
  void configure(const MemoryOptions& options, const Backend& backend) {
    options_ = options;
    backend_ = &backend;
  }
  const MemoryOptions& options() const { return options_; }

  // Plans the memory for sampling from a model of this shape and training it. Returns the plan's parts, `total` and `available`. Throws
  // RequestError("OutOfMemory") with the same figures if the model would not fit, or would not fit beside the held state during the load.
  // `shared`: its weights are held already.
  Json plan_load(const Architecture& architecture, const std::optional<LoraSettings>& lora, MomentFormat moments,
                 bool reference, bool shared = false) const;

  // Plans the weights of one more model beside everything that is held. Throws as `plan_load`.
  void plan_reference(const Policy& policy) const;

  // Plans training on this batch, which must be valid. Throws BatchError with the batch's rows and the figures if no pass fits.
  ForestPassSettings plan_update(const Policy& policy, const Batch& batch, bool reference) const;

 private:
  MemoryRequest request_for(const Architecture& architecture, const std::optional<LoraSettings>& lora, MomentFormat moments,
                            bool reference) const;
  std::vector<ForestPassSettings> choices(int most_rows) const;

  MemoryOptions options_;
  const Backend* backend_ = nullptr;
};

}  // namespace longhaul
