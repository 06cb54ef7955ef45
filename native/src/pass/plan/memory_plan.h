// The memory that loading and training a model will take, before any of it is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "model/adapters.h"
#include "model/moments.h"
#include "pass/rows.h"

namespace longhaul {

struct MemoryRequest {
  Architecture architecture;
  std::optional<LoraSettings> lora;
  MomentFormat moments = MomentFormat::fp32;
  bool reference = false;   // whether frozen reference weights are held too (full fine-tuning with KL)
  int threads = 1;
  std::size_t kv_cache_bytes = 0;
  int pass_rows = 4096;
  bool recompute = false;
  int longest_chain = 0;    // tokens of the longest sequence
  int batch_rows = 0;       // rows of the largest mini-batch, whose keys and values are kept
};

/// Bytes. `total` is the sum of the parts.
struct MemoryPlan {
  std::size_t weights = 0, panels = 0, moments = 0, next_policy = 0, gradients = 0, backward_panels = 0, reference = 0,
              kv_cache = 0, rope = 0, activations = 0, keys_values = 0, head = 0, total = 0;
};

/// A part of a plan: its key in replies, its name in errors, its bytes.
struct MemoryPart {
  const char* key;
  const char* text;
  std::size_t bytes;
};

/// All parts, without `total`.
std::array<MemoryPart, 12> parts(const MemoryPlan& plan);

/// What a device takes beside what all take.
struct DeviceMemory {
  /// Rows that memory is allocated for.
  std::size_t (*rows)(int rows);
  /// Of a pass of `rows`, beside the buffers of ForestPass.
  std::size_t (*working_floats)(const MemoryRequest& request, const RowWidths& widths, std::size_t rows);
  /// Adds what it keeps outside passes.
  void (*add)(const MemoryRequest& request, MemoryPlan& plan);
};

MemoryPlan plan_memory(const MemoryRequest& request, const DeviceMemory& device);

/// "needs 12.3 GiB (weights 4.1, moments 8.2, …); 7.9 GiB are free", for errors and replies.
std::string describe(const MemoryPlan& plan, std::size_t available);

}  // namespace longhaul
