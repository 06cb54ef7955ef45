#include "state/state_tensors.h"

#include <algorithm>
#include <utility>

namespace longhaul {
namespace {

// The arrays of a policy that make up a state.
enum ArrayKind { trained, first, second, first_codes, first_scales, second_codes, second_scales, array_kinds };

struct StatePlace {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  ArrayKind array;
  std::size_t offset, size;  // bytes within the array
};

// The places of all tensors of a state, sorted by name. `size`: number of values in the trained array.
std::vector<StatePlace> state_places(const std::vector<TensorPlace>& trained_places, std::size_t size, MomentFormat moments) {
  std::vector<StatePlace> places;
  for (const TensorPlace& place : trained_places) {
    const auto add = [&](std::string name, ArrayKind array) {
      places.push_back({std::move(name), "F32", place.shape, array, place.offset * sizeof(float), place.size * sizeof(float)});
    };
    add(place.name, trained);
    if (moments != MomentFormat::fp32) continue;
    add("adam.m." + place.name, first);
    add("adam.v." + place.name, second);
  }
  if (moments == MomentFormat::int8) {
    const std::size_t blocks = (size + Moments::block - 1) / Moments::block;
    const auto add = [&](const char* name, const char* dtype, std::size_t count, std::size_t bytes, ArrayKind array) {
      places.push_back({name, dtype, {std::int64_t(count)}, array, 0, count * bytes});
    };
    add("adam.m8.codes", "I8", size, 1, first_codes);
    add("adam.m8.scales", "F32", blocks, sizeof(float), first_scales);
    add("adam.v8.codes", "U8", size, 1, second_codes);
    add("adam.v8.scales", "F32", blocks, sizeof(float), second_scales);
  }
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return places;
}

template <class Byte>
Byte* bytes_at(auto* values) {
  return reinterpret_cast<Byte*>(values);
}

// `Owner` is Policy or const Policy.
template <class Byte, class Owner>
std::vector<TensorBytes<Byte>> list_state(Owner& policy) {
  auto& moments = policy.moments();
  const auto values = policy.trained();
  Byte* arrays[array_kinds];
  arrays[trained] = bytes_at<Byte>(values.data());
  arrays[first] = bytes_at<Byte>(moments.first.data());
  arrays[second] = bytes_at<Byte>(moments.second.data());
  arrays[first_codes] = bytes_at<Byte>(moments.first_codes.data());
  arrays[first_scales] = bytes_at<Byte>(moments.first_scales.data());
  arrays[second_codes] = bytes_at<Byte>(moments.second_codes.data());
  arrays[second_scales] = bytes_at<Byte>(moments.second_scales.data());
  std::vector<TensorBytes<Byte>> tensors;
  for (StatePlace& place : state_places(policy.trained_places(), values.size(), moments.format)) {
    tensors.push_back({std::move(place.name), std::move(place.dtype), std::move(place.shape),
                       {arrays[place.array] + place.offset, place.size}});
  }
  return tensors;
}

template <class Byte, class Owner>
std::vector<TensorBytes<Byte>> list_weights(Owner& weights) {
  std::vector<TensorBytes<Byte>> tensors;
  for (const auto& tensor : weights.tensors()) {
    tensors.push_back({tensor.name, "F32", tensor.shape, {bytes_at<Byte>(tensor.values.data()), tensor.values.size_bytes()}});
  }
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

std::vector<TensorBytes<const std::byte>> expected_state_tensors(const Architecture& architecture,
                                                                 const std::optional<LoraSettings>& lora,
                                                                 MomentFormat moments) {
  std::vector<TensorPlace> trained_places;
  std::size_t size = 0;
  if (lora) {
    const AdapterLayout layout(architecture, *lora);
    trained_places = tensor_places(*lora, layout);
    size = layout.total;
  } else {
    const ParameterLayout layout(architecture);
    trained_places = tensor_places(architecture, layout);
    size = layout.total;
  }
  std::vector<TensorBytes<const std::byte>> tensors;
  for (StatePlace& place : state_places(trained_places, size, moments)) {
    tensors.push_back({std::move(place.name), std::move(place.dtype), std::move(place.shape), {}});
  }
  return tensors;
}

std::vector<TensorBytes<const std::byte>> expected_weight_tensors(const Architecture& architecture) {
  std::vector<TensorBytes<const std::byte>> tensors;
  for (TensorPlace& place : tensor_places(architecture, ParameterLayout(architecture))) {
    tensors.push_back({std::move(place.name), "F32", std::move(place.shape), {}});
  }
  return tensors;
}

}  // namespace longhaul
