// LoRA (Hu et al. 2021): y += (alpha / rank) · (x·Aᵀ)·Bᵀ beside a frozen linear layer. Adapters are never merged while
// training or sampling: merging rounds differently, and rollout and update must see the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "model/parameters.h"
#include "model/rounded_copy.h"
#include "ops/ops.h"

namespace longhaul {

enum class LoraTarget { q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj };

/// "q_proj" …
const char* name(LoraTarget target);
/// The module's path inside a layer: "self_attn.q_proj" …
std::string module_path(LoraTarget target);

struct LoraSettings {
  int rank = 0;
  double alpha = 0;
  /// Sorted, without repeats, not empty.
  std::vector<LoraTarget> targets;

  float scale() const { return float(alpha / rank); }
  bool operator==(const LoraSettings&) const = default;
};

/// Throws std::invalid_argument that names the key, its value and what is allowed.
void validate(const LoraSettings& settings, const Architecture& architecture);

/// B of one target. Its output is added to columns [first_output, first_output + b.rows) of the fused linear layer.
struct AdapterPart {
  LoraTarget target;
  ParameterRange b;  // [outputs, rank]
  int first_output = 0;
};

/// All adapters of one fused linear layer. Their A matrices are contiguous, so one GEMM gives x·Aᵀ for all of them.
struct FusedAdapter {
  ParameterRange a;  // [parts · rank, inputs]
  std::vector<AdapterPart> parts;

  bool empty() const { return parts.empty(); }
};

struct LayerAdapters {
  FusedAdapter qkv, output, gate_up, down;
};

struct AdapterLayout {
  std::vector<LayerAdapters> layers;
  size_t total = 0;

  AdapterLayout() = default;
  AdapterLayout(const Architecture& architecture, const LoraSettings& settings);
  std::vector<ParameterRange> ranges() const;
};

/// `model.layers.N.<module>.lora_A.weight` [rank, inputs] and `lora_B.weight` [outputs, rank], sorted by name.
std::vector<TensorPlace> tensor_places(const LoraSettings& settings, const AdapterLayout& layout);

struct FusedAdapterPanels {
  ops::Panels a;
  std::vector<ops::Panels> b;  // one for each part
};

struct LayerAdapterPanels {
  FusedAdapterPanels qkv, output, gate_up, down;
};

class Adapters {
 public:
  /// All zero: fill `values()`, or call `initialize`.
  Adapters(const Architecture& architecture, const LoraSettings& settings);

  /// Draws A uniformly in ±1/√inputs (PEFT's default, Kaiming with a = √5; Philox domain 3), zeroes B.
  void initialize(uint64_t seed);

  const LoraSettings& settings() const { return settings_; }
  const AdapterLayout& layout() const { return layout_; }
  std::span<float> values() { return values_.span(); }
  std::span<const float> values() const { return values_.span(); }

  /// Call it after every change of values that may have been packed.
  void changed() {
    packed_ = false;
    rounded_.changed();
  }
  /// Packs the rows of A and B, unless they are packed; in bf16, those of `computed`. Only a CPU's forward pass reads them. One thread at a time.
  void pack_forward(ThreadPool* pool, ops::Arithmetic arithmetic = ops::Arithmetic::fp32) const;
  /// Throws std::logic_error if they are not packed.
  const std::vector<LayerAdapterPanels>& forward_panels() const;
  /// As Weights::computed.
  const Adapters& computed(ops::Arithmetic arithmetic) const { return arithmetic == ops::Arithmetic::bf16 ? rounded_.get() : *this; }
  void drop_rounded() { rounded_ = {}; }
  /// Packs the columns of A and B, for dx = dy·B·A.
  void pack_backward(std::vector<LayerAdapterPanels>& out, ThreadPool* pool = nullptr) const;

 private:
  LoraSettings settings_;
  AdapterLayout layout_;
  AlignedBuffer values_{BufferMemory::copied};
  mutable std::vector<LayerAdapterPanels> forward_;
  mutable bool packed_ = false;
  mutable RoundedCopy<Adapters> rounded_;
};

}  // namespace longhaul
