// The tensors of a state and of weights as bytes, in the order of their names. Files contain, and digests cover, these
// bytes.
// defines: TensorBytes, state_tensors, weight_tensors, expected_state_tensors, expected_weight_tensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/policy.h"
#include "model/weights.h"

namespace longhaul {

template <class Byte>
struct TensorBytes {
  std::string name;
  std::string dtype;  // as in a safetensors header
  std::vector<std::int64_t> shape;
  std::span<Byte> bytes;
};

// The moments (`adam.m.*`, `adam.v.*`, or the four tensors of `int8`) and the trained part: the adapters, or `model.*`
// and `lm_head.weight`.
std::vector<TensorBytes<std::byte>> state_tensors(Policy& policy);
std::vector<TensorBytes<const std::byte>> state_tensors(const Policy& policy);

// `lm_head.weight` (untied only) and `model.*`.
std::vector<TensorBytes<std::byte>> weight_tensors(Weights& weights);
std::vector<TensorBytes<const std::byte>> weight_tensors(const Weights& weights);

// The same lists without the bytes, before anything is allocated.
std::vector<TensorBytes<const std::byte>> expected_state_tensors(const Architecture& architecture,
                                                                 const std::optional<LoraSettings>& lora,
                                                                 MomentFormat moments);
std::vector<TensorBytes<const std::byte>> expected_weight_tensors(const Architecture& architecture);

}  // namespace longhaul
