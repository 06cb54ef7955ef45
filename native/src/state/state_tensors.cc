#include "state/state_tensors.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace longhaul {
namespace {

template <class Byte, class Values>
std::span<Byte> bytes_of(Values&& values) {
  using Value = std::remove_reference_t<decltype(*values.data())>;
  return {reinterpret_cast<Byte*>(values.data()), values.size() * sizeof(Value)};
}

template <class Byte>
void sort_by_name(std::vector<TensorBytes<Byte>>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

// `Owner` is Policy, or const Policy.
template <class Byte, class Owner>
std::vector<TensorBytes<Byte>> list_state(Owner& policy) {
  std::vector<TensorBytes<Byte>> tensors;
  const auto places = policy.trained_places();
  const auto trained = policy.trained();
  auto& moments = policy.moments();
  const auto part = [](auto&& values, const TensorPlace& place) {
    return bytes_of<Byte>(values.subspan(place.offset, place.size));
  };
  for (const TensorPlace& place : places) {
    tensors.push_back({place.name, "F32", place.shape, part(trained, place)});
    if (moments.format != MomentFormat::fp32) continue;
    tensors.push_back({"adam.m." + place.name, "F32", place.shape, part(moments.first.span(), place)});
    tensors.push_back({"adam.v." + place.name, "F32", place.shape, part(moments.second.span(), place)});
  }
  if (moments.format == MomentFormat::int8) {
    const auto size = std::int64_t(moments.size), blocks = std::int64_t(moments.blocks());
    tensors.push_back({"adam.m8.codes", "I8", {size}, bytes_of<Byte>(moments.first_codes)});
    tensors.push_back({"adam.m8.scales", "F32", {blocks}, bytes_of<Byte>(moments.first_scales)});
    tensors.push_back({"adam.v8.codes", "U8", {size}, bytes_of<Byte>(moments.second_codes)});
    tensors.push_back({"adam.v8.scales", "F32", {blocks}, bytes_of<Byte>(moments.second_scales)});
  }
  sort_by_name(tensors);
  return tensors;
}

template <class Byte, class Owner>
std::vector<TensorBytes<Byte>> list_weights(Owner& weights) {
  std::vector<TensorBytes<Byte>> tensors;
  for (auto& tensor : weights.tensors()) {
    tensors.push_back({tensor.name, "F32", tensor.shape, bytes_of<Byte>(tensor.values)});
  }
  sort_by_name(tensors);
  return tensors;
}

}  // namespace

std::vector<TensorBytes<std::byte>> state_tensors(Policy& policy) { return list_state<std::byte>(policy); }

std::vector<TensorBytes<const std::byte>> state_tensors(const Policy& policy) {
  return list_state<const std::byte>(policy);
}

std::vector<TensorBytes<std::byte>> weight_tensors(Weights& weights) { return list_weights<std::byte>(weights); }

std::vector<TensorBytes<const std::byte>> weight_tensors(const Weights& weights) {
  return list_weights<const std::byte>(weights);
}

}  // namespace longhaul
